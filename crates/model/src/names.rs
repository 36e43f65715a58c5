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
            (if within && name.len() > 2 { 0 } else { strsim::levenshtein(&name, &folded) }, other)
        })
        .filter(|(distance, _)| *distance <= allowed)
        .collect();
    similar.sort();
    similar.into_iter().take(3).map(|(_, other)| other).collect()
}
