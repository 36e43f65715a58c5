//! One promise, several tests: each case of it is a test of its own, so that all of them run side
//! by side and none takes long.

/// Declares a module with the promise as its name, and in it a test for each case, which calls a
/// function of the surrounding module. Cases are literals.
macro_rules! test_cases {
    ($(#[$about:meta])* $promise:ident = $run:ident { $($case:ident: $value:expr,)+ }) => {
        $(#[$about])*
        mod $promise {
            $(
                #[test]
                fn $case() {
                    super::$run($value);
                }
            )+
        }
    };
}
