//! The fitted numbers of a catalogue, and how a fit changes them.

use super::catalogue::Catalogue;
use super::parameter::How;

impl Catalogue {
    /// The fitted numbers: component and name.
    pub fn fitted(&self) -> Vec<(String, String)> {
        self.fitted_places().into_iter().map(|mut places| places.swap_remove(0)).collect()
    }

    /// The fitted numbers, each with all its places: parts of a family share a number.
    pub(crate) fn fitted_places(&self) -> Vec<Vec<(String, String)>> {
        let mut numbers: Vec<Vec<(String, String)>> = Vec::new();
        for (component, parts) in &self.component {
            for (name, parameter) in parts.parameters.iter().filter(|(_, one)| one.how == How::Fitted) {
                let shares = |places: &&mut Vec<(String, String)>| {
                    let (other, other_name) = &places[0];
                    let other = &self.component[other].parameters[other_name];
                    other_name == name && other.source == parameter.source && other.value == parameter.value
                };
                let place = (component.clone(), name.clone());
                match numbers.iter_mut().find(shares) {
                    Some(places) => places.push(place),
                    None => numbers.push(vec![place]),
                }
            }
        }
        numbers
    }

    /// Forgets a number, so that the model's default takes its place.
    pub(crate) fn forget(&mut self, component: &str, name: &str) {
        if let Some(component) = self.component.get_mut(component) {
            component.parameters.remove(name);
        }
    }

    /// A number in place, for fitting.
    pub(crate) fn value_mut(&mut self, component: &str, name: &str) -> Option<&mut f64> {
        let parameters = &mut self.component.get_mut(component)?.parameters;
        parameters.get_mut(name).map(|parameter| &mut parameter.value)
    }
}
