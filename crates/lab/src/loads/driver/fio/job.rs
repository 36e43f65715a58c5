//! A step as a job file of fio. Pure.
//!
//! What fio has no words for is refused with the reason, never left out.

use super::{Asked, FioError};
use crate::loads::contents::Data;
use crate::loads::workload::{Arrival, Pattern, Region, Workload};
use crate::method::{Profile, Step};

/// A job file with a job for each load of the step.
pub(super) fn job_file(
    profile: &Profile,
    step: &Step,
    asked: &Asked<'_>,
    run: u32,
) -> Result<String, FioError> {
    let mut text = String::new();
    for (number, load) in step.loads().enumerate() {
        text += &format!("[job{number}]\n{}\n", job(profile, step, load, asked, run)?);
    }
    Ok(text)
}

fn job(
    profile: &Profile,
    step: &Step,
    workload: &Workload,
    asked: &Asked<'_>,
    run: u32,
) -> Result<String, FioError> {
    let unable = |why: &str| FioError::Unable { step: step.name.clone(), why: why.to_owned() };
    let path = asked.path.to_str().filter(|path| !path.contains(['\n', '\r']));
    let path = path.ok_or_else(|| unable("a path with a line break in it"))?.replace(':', "\\:");
    if profile.verify {
        return Err(unable(
            "comparing what was written is a load of its own; --driver native does it afterwards",
        ));
    }
    if !workload.accesses.is_empty() {
        return Err(unable("it has no access specifications of several lines"));
    }
    if workload.fua_every > 1 {
        return Err(unable("it forces every write or none"));
    }
    let region = Region::within(workload.region, asked.size_bytes);
    if region.length_bytes == 0 {
        return Err(unable("it begins behind the end of what is in use"));
    }
    let mut job = vec![
        format!("filename={path}"),
        format!("size={}", region.length_bytes),
        format!("offset={}", region.offset_bytes),
        "direct=1".into(),
        "ioengine=io_uring".into(),
        format!("runtime={}ms", (asked.seconds * 1e3) as u64),
        format!("iodepth={}", workload.depth),
        format!("numjobs={}", workload.jobs),
        "group_reporting=1".into(),
        "norandommap=1".into(),
        "randrepeat=1".into(),
        "lat_percentiles=1".into(),
        format!("randseed={}", asked.seed.wrapping_add(u64::from(run)) & 0xffff_ffff),
    ];
    // Each job goes on until the time is over, or has its share of what ends the load.
    let share = |most: u64| most.div_ceil(u64::from(workload.jobs));
    if workload.is_counted() {
        job.extend(workload.most_requests.map(|most| format!("number_ios={}", share(most))));
        job.extend(workload.most_bytes.map(|most| format!("io_size={}", share(most))));
    } else {
        job.push("time_based=1".into());
        job.push(format!("ramp_time={}ms", (asked.seconds * 100.0).min(250.0) as u64));
    }
    match profile.data {
        Data::Unique => job.push("refill_buffers=1".into()),
        Data::Compressible(percent) => {
            job.extend(["refill_buffers=1".into(), format!("buffer_compress_percentage={percent}")]);
        }
        Data::Zeros => job.push("zero_buffers=1".into()),
    }
    let reads = (workload.read_share * 100.0).round() as u32;
    let (base, sides) = match reads {
        0 if workload.discards => ("trim", String::new()),
        _ if workload.discards => return Err(unable("it does not discard between reads")),
        0 => ("write", String::new()),
        100 => ("read", String::new()),
        _ => ("rw", format!("rwmixread={reads}")),
    };
    job.extend(Some(sides).filter(|sides| !sides.is_empty()));
    job.push(blocks(workload));
    match workload.pattern {
        Pattern::Sequential => job.push(format!("rw={base}")),
        Pattern::Random => job.push(format!("rw=rand{base}")),
        Pattern::Partly(percent) => {
            job.extend([format!("rw=rand{base}"), format!("percentage_random={percent}")]);
        }
        Pattern::Strided(stride) => {
            let gap = stride.checked_sub(workload.largest_block_bytes());
            let gap = gap.ok_or_else(|| unable("strides shorter than a block"))?;
            job.push(format!("rw={base}:{gap}"));
        }
        Pattern::Zipf(theta) => job.extend([
            format!("rw=rand{base}"),
            format!("random_distribution=zipf:{:.2}", f64::from(theta) / 100.0),
        ]),
        Pattern::HotSpot(requests, region) => job.extend([
            format!("rw=rand{base}"),
            format!("random_distribution=zoned:{requests}/{region}:{}/{}", 100 - requests, 100 - region),
        ]),
    }
    // Each job its own part, as the native driver's.
    if workload.pattern.is_sequential() && workload.jobs > 1 {
        let part = region.length_bytes / u64::from(workload.jobs) / 4096 * 4096;
        job.push(format!("offset_increment={part}"));
        job[1] = format!("size={part}");
    }
    let per_job = |rate: f64| (rate / f64::from(workload.jobs)).max(1.0) as u64;
    match workload.arrival {
        Arrival::Closed => {}
        Arrival::Fixed(rate) | Arrival::Limited(rate) => job.push(format!("rate_iops={}", per_job(rate))),
        Arrival::Poisson(rate) => {
            job.extend([format!("rate_iops={}", per_job(rate)), "rate_process=poisson".into()]);
        }
    }
    if workload.think_us > 0 {
        job.push(format!("thinktime={}", workload.think_us));
    }
    if workload.flush_every > 0 {
        job.push(format!("fsync={}", workload.flush_every));
    }
    if workload.fua_every == 1 {
        job.push("sync=dsync".into());
    }
    if step.beside.is_some() {
        job.push("new_group=1".into());
    }
    Ok(job.join("\n") + "\n")
}

fn blocks(workload: &Workload) -> String {
    match workload.blocks.as_slice() {
        [only] => format!("bs={}", only.bytes),
        several => {
            let total: u32 = several.iter().map(|block| block.share).sum();
            let share = |share: u32| (f64::from(share) * 100.0 / f64::from(total.max(1))).round() as u32;
            let parts: Vec<String> =
                several.iter().map(|block| format!("{}/{}", block.bytes, share(block.share))).collect();
            format!("bssplit={}", parts.join(":"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::method::{Circumstances, built_in};
    use std::path::Path;

    fn asked() -> Asked<'static> {
        Asked {
            path: Path::new("/srv/a:b"),
            size_bytes: 1 << 30,
            runs: 1,
            within: None,
            seconds: 2.0,
            may_write: true,
            circumstances: Circumstances { filled_before: true, ..Circumstances::default() },
            seed: 7,
            hosts: &[],
        }
    }

    #[test]
    fn loads_become_jobs() {
        let toshiba = built_in("toshiba").expect("it");
        let mixed = job_file(&toshiba, &toshiba.steps[2], &asked(), 0).expect("a job");
        for line in [
            "filename=/srv/a\\:b",
            "rw=randrw",
            "rwmixread=50",
            "bssplit=4096/20:65536/50:262144/20:2097152/10",
            "iodepth=64",
            "numjobs=8",
            "runtime=2000ms",
        ] {
            assert!(mixed.lines().any(|found| found == line), "{line}: {mixed}");
        }
        let change = |change: fn(&mut Workload)| {
            let mut step = toshiba.steps[1].clone();
            change(&mut step.workload);
            job_file(&toshiba, &step, &asked(), 0)
        };
        for (line, made) in [
            ("sync=dsync", change(|w| w.fua_every = 1)),
            ("rw=trim", change(|w| (w.discards, w.read_share) = (true, 0.0))),
            ("number_ios=500", change(|w| w.most_requests = Some(500))),
            ("io_size=1048576", change(|w| w.most_bytes = Some(1 << 20))),
            ("rate_iops=500", change(|w| w.arrival = Arrival::Limited(500.0))),
            ("thinktime=9", change(|w| w.think_us = 9)),
            ("fsync=4", change(|w| w.flush_every = 4)),
            ("offset=4096", change(|w| w.region = Some(Region { offset_bytes: 4096, length_bytes: 8192 }))),
            ("size=8192", change(|w| w.region = Some(Region { offset_bytes: 4096, length_bytes: 8192 }))),
        ] {
            let made = made.expect(line);
            assert!(made.lines().any(|found| found == line), "{line}: {made}");
        }
        assert!(change(|w| w.fua_every = 2).is_err());
        let zeros = Profile { data: Data::Compressible(40), ..toshiba.clone() };
        let made = job_file(&zeros, &toshiba.steps[0], &asked(), 0).expect("a job");
        assert!(made.contains("buffer_compress_percentage=40"), "{made}");
        let checked = Profile { verify: true, ..toshiba.clone() };
        assert!(job_file(&checked, &toshiba.steps[0], &asked(), 0).is_err());
        let orion = built_in("orion-normal").expect("it");
        let both = orion.steps.iter().find(|step| step.name == "small 4 large 2").expect("it");
        let made = job_file(&orion, both, &asked(), 0).expect("a job");
        assert_eq!((made.matches("[job").count(), made.matches("new_group=1").count()), (2, 2), "{made}");
        assert!(change(|w| w.pattern = Pattern::Zipf(120)).expect("a job").contains("zipf:1.20"));
        assert!(
            change(|w| w.pattern = Pattern::HotSpot(80, 20)).expect("a job").contains("zoned:80/20:20/80")
        );
        assert!(
            change(|w| w.pattern = Pattern::Strided(4 << 20)).expect("a job").contains("rw=read:3145728")
        );
        assert!(change(|w| w.pattern = Pattern::Strided(4096)).is_err());
        assert!(
            change(|w| w.arrival = Arrival::Poisson(500.0)).expect("a job").contains("rate_process=poisson")
        );
    }
}
