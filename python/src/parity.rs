//! Parity of units in Python's memory: P, Q and R over GF(2^8), as the arrays compute them.

use pyo3::prelude::*;
use stripewise_parity::{MAXIMUM_DATA_UNITS, MAXIMUM_PARITY, Recovery};

use crate::buffers::Stripe;
use crate::failure::Failure;

fn check_number(what: &str, number: usize, most: usize) -> PyResult<()> {
    match (1..=most).contains(&number) {
        true => Ok(()),
        false => Err(Failure::request(
            format!("{number} {what} units do not form a stripe"),
            format!("a stripe has 1 to {most} of them"),
        )
        .into()),
    }
}

/// Computes the parity units of data units.
#[pyfunction]
pub(crate) fn parity_encode(
    py: Python<'_>,
    data: Vec<Bound<'_, PyAny>>,
    parity: Vec<Bound<'_, PyAny>>,
) -> PyResult<()> {
    check_number("data", data.len(), MAXIMUM_DATA_UNITS)?;
    check_number("parity", parity.len(), MAXIMUM_PARITY)?;
    let mut stripe = Stripe::new(&data, &parity)?;
    py.detach(|| {
        let (data, mut parity) = stripe.slices();
        stripewise_parity::encode(&data, &mut parity);
    });
    Ok(())
}

/// Computes lost units from as many others as there are data units; each has its number.
#[pyfunction]
pub(crate) fn parity_recover(
    py: Python<'_>,
    data_units: usize,
    sources: Vec<(usize, Bound<'_, PyAny>)>,
    wanted: Vec<(usize, Bound<'_, PyAny>)>,
) -> PyResult<()> {
    check_number("data", data_units, MAXIMUM_DATA_UNITS)?;
    let (numbers, sources): (Vec<usize>, Vec<_>) = sources.into_iter().unzip();
    let (lost, outputs): (Vec<usize>, Vec<_>) = wanted.into_iter().unzip();
    let recovery = Recovery::new(data_units, &numbers, &lost).ok_or_else(|| {
        Failure::request(
            format!("units {lost:?} cannot be recovered from {} units", numbers.len()),
            format!("{data_units} distinct units of the stripe are needed"),
        )
    })?;
    let mut stripe = Stripe::new(&sources, &outputs)?;
    py.detach(|| {
        let (sources, mut outputs) = stripe.slices();
        recovery.apply(&sources, &mut outputs);
    });
    Ok(())
}

/// Brings parity units up to date with a change of one data unit, old ^ new.
#[pyfunction]
pub(crate) fn parity_update(
    py: Python<'_>,
    unit: usize,
    change: Bound<'_, PyAny>,
    parity: Vec<Bound<'_, PyAny>>,
) -> PyResult<()> {
    check_number("data", unit.saturating_add(1), MAXIMUM_DATA_UNITS)?;
    check_number("parity", parity.len(), MAXIMUM_PARITY)?;
    let rows: Vec<usize> = (0..parity.len()).collect();
    let mut stripe = Stripe::new(&[change], &parity)?;
    py.detach(|| {
        let (change, mut parity) = stripe.slices();
        stripewise_parity::update(unit, change[0], &rows, &mut parity);
    });
    Ok(())
}

/// The name of the kernel in use.
#[pyfunction]
pub(crate) fn parity_kernel() -> &'static str {
    stripewise_parity::kernel_name()
}
