//! Trials of reliability, in drive-years: eight drives over ten years, one thread. A textbook's
//! RAID 5, RAID 6 with the defaults (latent errors, scrubs, delays), and 60 drives in six groups.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use stripewise_layout::LayoutSpec;
use stripewise_model::reliability::{Law, Stop, Wishes, estimate};

const TRIALS: u64 = 4096;

fn trials(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("drive-years");
    let wishes = |layout: &str, drives| Wishes::new(layout.parse::<LayoutSpec>().expect("a layout"), drives);
    let textbook = Wishes {
        failure: Some(Law::exponential(1e6)),
        restore: Some(Law::exponential(24.0)),
        ..wishes("raid5", 8)
    };
    let mut grouped = wishes("raid60", 60);
    grouped.layout.groups = Some(6);
    for (name, wishes) in
        [("textbook raid5", textbook), ("default raid6", wishes("raid6", 8)), ("default raid60", grouped)]
    {
        let asked = wishes.question().expect("a question");
        let stop = Stop { most_trials: TRIALS, threads: Some(1), ..Stop::default() };
        group.throughput(Throughput::Elements(TRIALS * wishes.drives as u64 * 10));
        group.bench_function(name, |bencher| {
            bencher.iter(|| estimate(&asked.question, asked.bytes_per_group, 1, &stop, &mut |_, _| true));
        });
    }
    group.finish();
}

criterion_group!(benches, trials);
criterion_main!(benches);
