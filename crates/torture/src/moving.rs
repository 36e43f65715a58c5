//! What moves while everything goes on: drives that work are replaced. Nothing of it harms anything: all redundancy stays, so
//! no drive counts as lost for it, and as many as before may be taken away meanwhile.

use std::collections::BTreeSet;

use crate::Drawn;
use crate::life::Life;
use crate::subject::{Place, Subject};

impl Life {
    /// Replaces a drive that works; no volume may lack anything for it.
    pub async fn replace_healthy(&self, subject: &Subject) {
        let online: Vec<Place> =
            subject.places().into_iter().filter(|place| place.is_online && place.is_data).collect();
        let Some(old) = self.world.pick(&online) else { return };
        let stays = self.world.options.drawn == Drawn::Now;
        if !stays && !self.try_harm(&BTreeSet::from([old.disk])) {
            return;
        }
        let Some((disk, top)) = self.new_disk() else { return };
        if !stays {
            // As it was once: the old drive is out before the new one is filled.
            let failed = self.bounded("failing a drive", subject.fail_drive(old.id)).await;
            self.asked(&format!("fail disk{}", old.disk), failed);
        }
        let replaced = self.bounded("replacing a drive", subject.replace(old.id, top)).await;
        let has_begun = stays && matches!(replaced, Some(Ok(())));
        self.world.cover(|coverage| coverage.replacements += u64::from(has_begun));
        self.asked(&format!("replace healthy disk{} by disk{disk}", old.disk), replaced);
    }
}
