//! Names that were not found: which known ones look most like them.

/// Up to three known names, the most similar first; none where nothing is similar.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let name = name.to_lowercase();
    let allowed = (name.chars().count() / 2).max(2);
    let mut similar: Vec<(usize, &str)> = known
        .into_iter()
        .map(|other| {
            let folded = other.to_lowercase();
            let within = folded.contains(&name) || name.contains(&folded);
            (if within && name.len() > 2 { 0 } else { distance(&name, &folded) }, other)
        })
        .filter(|(distance, _)| *distance <= allowed)
        .collect();
    similar.sort();
    similar.into_iter().take(3).map(|(_, other)| other).collect()
}

/// Insertions, deletions and replacements from one to the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
