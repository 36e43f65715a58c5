//! Published advice, by the finding that gives it: the model and the data must lead to it. And what
//! every answer holds to: equals, dominance, sensitivity, contradictions, commands.

use stripewise_layout::LayoutSpec;
use stripewise_model::advise::{
    Advice, AdviceError, Choice, Matter, Need, advise, html, parse_drives, parse_link, parse_use,
    what_matters,
};

fn need(drives: &str, workload: &str) -> Need {
    Need::of(parse_drives(drives).unwrap(), parse_use(workload).unwrap())
}

fn advice(need: &Need) -> Advice {
    advise(need, &|_, _| ()).unwrap_or_else(|error| panic!("{error}; {}", error.hint()))
}

fn shown(advice: &Advice) -> String {
    let line = |choice: &Choice| {
        format!(
            "{} {} of {} {} in {}, {} controllers, journal {}: {:.0} MB/s ({:.0}/{:.0}/{:.0}), {:.1} TB, {:.1e}: {}",
            choice.rank,
            choice.layout,
            choice.drives,
            choice.drive,
            choice.groups,
            choice.controllers,
            choice.journal_drives,
            choice.normal.workload,
            choice.normal.seq_write,
            choice.normal.seq_read,
            choice.normal.mixed,
            choice.usable_bytes as f64 / 1e12,
            choice.loss_probability_per_year,
            choice.reason
        )
    };
    advice.choices.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn first_is(need: &Need, what: &str, holds: impl Fn(&Choice) -> bool) -> Advice {
    let advice = advice(need);
    assert!(holds(&advice.choices[0]), "{what}, but:\n{}", shown(&advice));
    advice
}

#[test]
fn f004_33_raid5_for_sequential_raid10_for_random() {
    first_is(&need("4xmg08ada400e", "sequential"), "RAID 5", |first| first.layout == "raid5");
    // And for capacity: of what survives a drive it holds most.
    let for_capacity = Need { capacity_bytes: Some(11_000_000_000_000), ..need("4xmg08ada400e", "mixed") };
    first_is(&for_capacity, "RAID 5", |first| first.layout == "raid5");
    first_is(&need("4xmg08ada400e", "mixed"), "RAID 10", |first| first.layout == "raid10");
    first_is(&need("4xmg08ada400e", "random"), "RAID 10", |first| first.layout == "raid10");
}

#[test]
fn f004_33_raid1_of_two_drives_behind_slow_links() {
    // USB: a box of two drives does what one stream over it can carry (study 004, ICY Box).
    for link in ["1gbe", "2.5gbe", "usb3"] {
        let need = Need {
            link: Some(parse_link(link).unwrap()),
            capacity_bytes: Some(8_000_000_000_000),
            ..need("4xmg08ada400e,2xmg08ada800e", "sequential")
        };
        let found = first_is(&need, &format!("RAID 1 behind {link}"), |first| {
            first.layout == "raid1" && first.drive == "mg08ada800e" && first.drives == 2
        });
        // F004-29: only a faster link makes the layout of four drives matter.
        assert!(
            found.sensitivity.iter().any(|line| line.contains("10gbe link raid5")),
            "{:?}\n{}",
            found.sensitivity,
            shown(&found)
        );
    }
}

#[test]
fn f004_35_raid60_of_six_groups_for_sixty_drives() {
    first_is(&need("60x8TB-hdd", "sequential"), "six groups of ten", |first| {
        first.layout == "raid60" && first.groups == 6
    });
}

#[test]
fn f002_54_two_controllers_for_solid_state_drives() {
    let workload = "read=70,random=100,block=8KiB,depth=32";
    let need = Need { controller: "adaptec-5085".to_owned(), controllers: 2, ..need("8xx25e", workload) };
    first_is(&need, "two controllers", |first| first.controllers == 2);
}

fn twelve_disks_and_solid_state_drives(controller: &str, workload: &str) -> Need {
    Need {
        controller: controller.to_owned(),
        journal: Some(parse_drives("4x850pro").unwrap().remove(0)),
        ..need("12xhe8", workload)
    }
}

/// This capacity needs parity: with the journal it is faster.
fn first_is_parity_with_a_journal(controller: &str) {
    let capacity_bytes = Some(60_000_000_000_000);
    let need = Need { capacity_bytes, ..twelve_disks_and_solid_state_drives(controller, "mixed") };
    first_is(&need, "parity with a journal", |first| {
        first.layout.starts_with("raid") && first.journal_drives == 4
    });
}

fn first_is_a_mirror_without(controller: &str) {
    let need = twelve_disks_and_solid_state_drives(controller, "mixed");
    let found =
        first_is(&need, "a mirror without", |first| first.layout == "raid10" && first.journal_drives == 0);
    let is_with = |choice: &&Choice| choice.layout == "raid10" && choice.journal_drives > 0;
    let with = found.choices.iter().find(is_with).unwrap();
    assert_eq!(with.dominated_by, Some(1), "{}", shown(&found));
}

test_cases! {
    f003_24_journal_drives_for_parity = first_is_parity_with_a_journal {
        storage_spaces: "storage-spaces",
        stripewise: "stripewise",
    }
}

test_cases! {
    f003_24_no_journal_drives_for_mirrors = first_is_a_mirror_without {
        storage_spaces: "storage-spaces",
        stripewise: "stripewise",
    }
}

fn first_has_a_journal_or_no_parity(workload: &str) {
    let need = twelve_disks_and_solid_state_drives("storage-spaces", workload);
    first_is(&need, workload, |first| {
        first.journal_drives > 0 || !["raid5", "raid6", "raid7"].contains(&first.layout.as_str())
    });
}

test_cases! {
    f003_07_no_storage_spaces_parity_without_journal = first_has_a_journal_or_no_parity {
        backup: "backup",
        mixed: "mixed",
    }
}

#[test]
fn unmet_requirements_name_the_nearest_layout() {
    let refused = |need: Need| match advise(&need, &|_, _| ()) {
        Err(error @ AdviceError::Contradiction { .. }) => format!("{error}; {}", error.hint()),
        other => panic!("{:?}", other.map(|advice| shown(&advice))),
    };
    let base = need("4x8TB-hdd", "sequential");
    let capacity = refused(Need { capacity_bytes: Some(100_000_000_000_000), ..base.clone() });
    assert!(capacity.contains("holds 100.0 TB") && capacity.contains("nearest: raid5"), "{capacity}");
    let both = refused(Need { capacity_bytes: Some(30_000_000_000_000), ..base.clone() });
    assert!(both.contains("loses data with") && both.contains("raid0"), "{both}");
    let budget = Need {
        budget: Some(100.0),
        prices: [("8tb-hdd".to_owned(), 150.0)].into(),
        capacity_bytes: Some(8_000_000_000_000),
        ..base
    };
    assert!(refused(budget).contains("budget of 100"));
}

#[test]
fn every_answer_is_ranked_reasoned_and_repeatable() {
    let need = Need { spares: 1, ..need("7x8TB-hdd", "mixed") };
    let found = advice(&need);
    assert!(found.choices.iter().enumerate().all(|(index, choice)| choice.rank == index + 1));
    assert!(found.choices.iter().all(|choice| !choice.reason.is_empty() && choice.drives == 6));
    for choice in &found.choices {
        if let Some(by) = choice.dominated_by {
            let other = &found.choices[by - 1];
            assert!(other.usable_bytes >= choice.usable_bytes && other.fits >= choice.fits);
        }
    }
    let json = |advice: &Advice| serde_json::to_string(advice).unwrap();
    assert_eq!(json(&found), json(&advice(&need)));
    let page = html(&found, "Six <drives>");
    assert!(page.contains("&lt;drives&gt;") && page.contains("<svg") && !page.contains("http"), "{page}");
    for outside in ["src=", "href=", "@import", "url("] {
        assert!(!page.contains(outside), "{outside}");
    }
}

#[test]
fn only_questions_that_can_change_advice_are_asked() {
    let base = need("4x8TB-hdd", "mixed");
    let found = advice(&base);
    let all = [Matter::Workload, Matter::Capacity, Matter::Link, Matter::Risk];
    let (matter, changes) = what_matters(&found, &base, &[]).expect("something matters");
    assert!(!changes.is_empty(), "{matter:?}");
    assert_eq!(what_matters(&found, &base, &all), None, "all is settled");
    for settled in &all {
        let next = what_matters(&found, &base, &[*settled]);
        assert_ne!(next.map(|(matter, _)| matter), Some(*settled));
    }
    // One drive allows a single layout only.
    let one = Need { risk_per_year: 0.1, ..need("1x8TB-hdd", "mixed") };
    assert_eq!(what_matters(&advice(&one), &one, &[Matter::Risk]), None);
}

#[test]
fn ssds_by_any_name_are_faster_than_disks() {
    let rate = |drives: &str| {
        let any_risk = Need { risk_per_year: 1.0, ..need(drives, "random") };
        let found = advice(&any_risk);
        found.choices.iter().map(|choice| choice.normal.workload).fold(0.0, f64::max)
    };
    let disks = rate("4x2TB-hdd");
    for drives in ["4xnvme", "4xp4500", "4xsata-ssd", "4x1TB-ssd", "4x2TB-nvme"] {
        assert!(rate(drives) > 5.0 * disks, "{drives}: {} against {disks}", rate(drives));
    }
}

#[test]
fn a_layout_that_would_be_left_out_can_be_included() {
    for (layout, columns) in [("raid4", 4), ("raid1", 3), ("raid5", 3)] {
        let spec = LayoutSpec { columns: Some(columns), ..layout.parse().unwrap() };
        let with = Need { include: Some(spec), risk_per_year: 1.0, ..need("4x8TB-hdd", "backup") };
        let found = advice(&with);
        let is_it = |choice: &&Choice| choice.layout == layout && choice.columns == columns;
        assert_eq!(found.choices.iter().filter(is_it).count(), 1, "{}", shown(&found));
    }
    let too_many = advise(&need("300x8TB-hdd", "mixed"), &|_, _| ()).unwrap_err().to_string();
    assert!(too_many.contains("at most 255"), "{too_many}");
}

#[test]
fn cost_decides_among_equal_choices() {
    let base = Need {
        buy: true,
        budget: Some(2000.0),
        prices: [("8tb-hdd".to_owned(), 200.0)].into(),
        bays: Some(5),
        link: Some(parse_link("1gbe").unwrap()),
        capacity_bytes: Some(8_000_000_000_000),
        ..need("5x8TB-hdd", "sequential")
    };
    let found = first_is(&base, "two drives", |first| first.layout == "raid1" && first.cost == Some(400.0));
    assert_eq!(found.choices[0].cost_per_tb, Some(50.0));
}

#[test]
fn a_cluster_of_storage_spaces_is_a_whole_stripe() {
    for drives in [3, 5, 9] {
        let found = advice(&need(&format!("{drives}x8TB-hdd"), "sequential"));
        let parity =
            found.choices.iter().filter(|choice| ["raid5", "raid6"].contains(&choice.layout.as_str()));
        for choice in parity.filter(|choice| !choice.commands.storage_spaces.is_empty()) {
            let all = choice.commands.storage_spaces.join(" ");
            let number = |after: &str| -> u64 {
                let rest =
                    &all[all.find(after).unwrap_or_else(|| panic!("{after} in {all}")) + after.len()..];
                rest.split(' ').next().unwrap().parse().unwrap()
            };
            let (columns, interleave) = (number("-NumberOfColumns "), number("-Interleave "));
            let data = if choice.layout == "raid6" { columns - 3 } else { columns - 1 };
            assert_eq!(number("-AllocationUnitSize "), data * interleave, "{all}");
            assert!(columns <= drives);
        }
    }
}

#[test]
fn mixed_drives_hold_what_a_pool_of_them_holds() {
    let base = Need { capacity_bytes: Some(27_000_000_000_000), ..need("4x8TB-hdd,2x4TB-hdd", "mixed") };
    let found = first_is(&base, "RAID 5 in five columns", |first| {
        (first.layout.as_str(), first.columns, first.drives) == ("raid5", 5, 6)
    });
    let first = &found.choices[0];
    assert!((first.usable_bytes as f64 / 32e12 - 1.0).abs() < 1e-3, "{}", shown(&found));
    assert!(first.commands.stripewise[1].contains("--layout raid5 --columns 5"), "{:?}", first.commands);
    // Any two drives share a row: riskier than five drives in every row, by the sixth.
    assert!(first.loss_probability_per_year > 2e-4, "{}", shown(&found));
}

fn no_choice_misses_a_limit((drives, workload, risk_per_year, capacity_tb): (&str, &str, f64, u64)) {
    let wanted = capacity_tb * 1_000_000_000_000;
    let base = Need { risk_per_year, capacity_bytes: Some(wanted), ..need(drives, workload) };
    let found = advice(&base);
    for choice in &found.choices {
        assert!(choice.loss_probability_per_year <= risk_per_year && choice.usable_bytes >= wanted);
    }
    assert!(found.excluded.iter().any(|one| one.array.starts_with("raid0")), "{:?}", found.excluded);
    // A stricter limit makes no risky layout the winner.
    let stricter = found.sensitivity.iter().find(|line| line.contains("raid0"));
    assert_eq!(stricter, None);
}

test_cases! {
    limits_hold = no_choice_misses_a_limit {
        mixed_work: ("4x8TB-hdd", "mixed", 1e-3, 8),
        strict: ("6x8TB-hdd", "backup", 1e-5, 16),
        solid_state: ("8x2TB-nvme", "random", 1e-3, 4),
    }
}

#[test]
fn no_safe_layout_is_no_advice() {
    let Err(error) = advise(&need("1x8TB-hdd", "mixed"), &|_, _| ()) else { panic!("one drive is not safe") };
    let said = format!("{error}; {}", error.hint());
    assert!(said.contains("0.1 % a year or less") && said.contains("nearest: single of 1 8tb-hdd"), "{said}");
}

fn for_sale(kinds: &str, prices: &[(&str, f64)], workload: &str) -> Need {
    let prices = prices.iter().map(|(name, price)| ((*name).to_owned(), *price)).collect();
    Need { buy: true, prices, ..need(kinds, workload) }
}

#[test]
fn backup_fills_bays_and_budget() {
    let bays = Need { bays: Some(8), ..for_sale("8x4TB-hdd,8x8TB-hdd", &[], "backup") };
    first_is(&bays, "all bays", |first| (first.drives, first.drive.as_str()) == (8, "8tb-hdd"));
    let prices = [("4tb-hdd", 90.0), ("8tb-hdd", 150.0)];
    let budget = Need { budget: Some(900.0), ..for_sale("10x4TB-hdd,6x8TB-hdd", &prices, "media") };
    let found = first_is(&budget, "most of the budget", |first| first.cost.is_some_and(|cost| cost > 750.0));
    let first = &found.choices[0];
    assert!(first.usable_bytes >= 32_000_000_000_000 && first.cost_per_tb < Some(30.0), "{}", shown(&found));
}

#[test]
fn a_wish_is_not_answered_by_three_times_as_much() {
    let wanted = Need {
        bays: Some(12),
        capacity_bytes: Some(60_000_000_000_000),
        ..for_sale("12x8TB-hdd,12x20TB-hdd", &[], "backup")
    };
    let of_size = |first: &Choice| (60..=90).contains(&(first.usable_bytes / 1_000_000_000_000));
    first_is(&wanted, "60 to 90 TB", of_size);
    // A budget that buys more is not left unspent for a rate that backups do not need.
    let prices = [("4tb-hdd", 90.0), ("8tb-hdd", 150.0)];
    let budget =
        Need { budget: Some(1500.0), bays: Some(12), ..for_sale("12x4TB-hdd,12x8TB-hdd", &prices, "backup") };
    first_is(&budget, "64 TB for 1500", |first| first.usable_bytes >= 56_000_000_000_000);
}

#[test]
fn archives_behind_a_link_get_six_groups_of_ten() {
    let link = Some(parse_link("10gbe").unwrap());
    let base = Need { link, ..need("60x20TB-hdd", "archive") };
    first_is(&base, "six groups of ten", |first| first.layout == "raid60" && first.groups == 6);
}

#[test]
fn an_enclosure_behind_usb_does_what_was_measured() {
    let link = Some(parse_link("usb3").unwrap());
    let base = Need { link, ..need("4xmg08ada400e", "mixed") };
    let found = advice(&base);
    // Study 004, ICY Box: MB/s of the mixed load.
    for (layout, measured) in [("raid5", 12.0), ("raid10", 23.0)] {
        let choice = found.choices.iter().find(|choice| choice.layout == layout).unwrap();
        let ratio = choice.normal.mixed / measured;
        assert!((0.5..2.0).contains(&ratio), "{layout}: {}", choice.normal.mixed);
    }
}
