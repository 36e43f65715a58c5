//! A volume of the engine as clients use it: directly, or through a file of a mount.
//!
//! Expected faults: errors of the engine, passed on as text.

use std::collections::BTreeSet;
use std::rc::Rc;

use stripewise_drive::Context;
use stripewise_export::VolumeExport;
use stripewise_export::fuse::Descriptor;
use stripewise_pool::{DirectVolume, Volume};

use super::files::{self, File};
use super::{Facts, Refusal, refusal, refused};

/// An open volume.
#[derive(Clone)]
pub(crate) struct Store {
    pub(super) volume: Volume,
    /// The file that requests go through, with the number of the descriptor.
    pub(super) file: Option<(Rc<File>, usize)>,
    /// The volume on the threads of its arrays, and the clock there.
    direct: Option<(Rc<DirectVolume>, Context)>,
}

impl Store {
    /// A volume that is used directly.
    pub(super) fn new(volume: Volume) -> Self {
        Self { volume, file: None, direct: None }
    }

    /// The same volume, used through one of the descriptors of its file.
    pub(crate) fn through(&self, file: &Rc<File>, descriptor: usize) -> Self {
        Self { volume: self.volume.clone(), file: Some((file.clone(), descriptor)), direct: None }
    }

    /// The same volume for a client whose requests come in on the threads of its arrays.
    pub(crate) fn on_threads_of_arrays(&self, context: &Context) -> Self {
        let direct = self.volume.direct().map(|direct| (Rc::new(direct), context.clone()));
        Self { direct, ..self.clone() }
    }

    /// The file that it is used through, and the number of the descriptor.
    pub(crate) fn file(&self) -> Option<(&Rc<File>, usize)> {
        self.file.as_ref().map(|(file, descriptor)| (file, *descriptor))
    }

    fn descriptor(&self) -> Option<&Descriptor> {
        self.file().map(|(file, number)| file.descriptor(number))
    }

    /// Usable size.
    pub(crate) fn capacity_bytes(&self) -> u64 {
        self.volume.capacity_bytes()
    }

    /// Data bytes of a stripe.
    pub(crate) fn stripe_bytes(&self) -> u64 {
        self.volume.geometry().stripe_data_bytes()
    }

    /// Approximate data bytes of a region: those on 1 MiB of each column.
    pub(crate) fn region_bytes(&self) -> u64 {
        let geometry = self.volume.geometry();
        (1 << 20) / geometry.interleave_bytes() * geometry.stripe_data_bytes()
    }

    /// True if the layout has parity, so that partial stripe writes update it.
    pub(crate) fn has_parity(&self) -> bool {
        self.volume.geometry().parity_units() > 0
    }

    /// True if the volume, described by `facts`, certainly cannot be read in full without these
    /// disks. False if that depends on the disks of single rows, or on which copies or groups are
    /// lost.
    pub(crate) fn surely_fails(&self, facts: &Facts, disks: &BTreeSet<usize>) -> bool {
        let geometry = self.volume.geometry();
        let shape = geometry.shape();
        let lost = facts.columns.iter().filter(|column| disks.contains(&column.disk)).count();
        let all_alike = !facts.is_converting
            && facts.columns.len() == geometry.width()
            && shape.groups == 1
            && (geometry.copies() == 1 || geometry.copies() == geometry.width());
        lost == facts.columns.len() || (all_alike && lost > facts.tolerance)
    }

    /// True if stripes still need a resync after a power cut.
    pub(crate) fn needs_resync(&self) -> bool {
        self.volume.needs_resync()
    }

    /// Reads a range.
    pub(crate) async fn read(&self, offset_bytes: u64, length: usize) -> Result<Vec<u8>, Refusal> {
        if let Some(descriptor) = self.descriptor() {
            return files::read(descriptor, offset_bytes, length).await;
        }
        if let Some((direct, context)) = &self.direct
            && let Some(Ok(Some(buffer))) = direct.read(context, offset_bytes, length, false).await
        {
            return Ok(buffer.to_vec());
        }
        let buffer = self.volume.read(offset_bytes, length).await.map_err(refusal)?;
        Ok(buffer.to_vec())
    }

    /// Writes a range.
    pub(crate) async fn write(&self, offset_bytes: u64, data: &[u8], fua: bool) -> Result<(), Refusal> {
        if let Some(descriptor) = self.descriptor() {
            return files::write(descriptor, offset_bytes, data, fua).await;
        }
        let buffer = self.volume.buffers().allocate(data.len());
        buffer.with_mut(|bytes| bytes.copy_from_slice(data));
        if let Some((direct, context)) = self.direct.as_ref().filter(|_| !fua)
            && let Some(Ok(())) = direct.write(context, offset_bytes, buffer.clone()).await
        {
            return Ok(());
        }
        self.volume.write(offset_bytes, buffer, fua).await.map_err(refused)
    }

    /// Flushes the volume.
    pub(crate) async fn flush(&self) -> Result<(), Refusal> {
        match self.descriptor() {
            Some(descriptor) => files::sync(descriptor).await,
            None => self.volume.flush().await.map_err(refusal),
        }
    }

    /// Discards a range, as an NBD client does. Programs that use a file punch a hole: it reads as
    /// zeros.
    pub(crate) async fn discard(&self, offset_bytes: u64, length: u64, fua: bool) -> Result<(), Refusal> {
        if let Some(descriptor) = self.descriptor() {
            return files::write_zeroes(descriptor, offset_bytes, length, fua).await;
        }
        stripewise_export::discard(&self.export(), offset_bytes, length, fua).await.map_err(refusal)
    }

    /// Writes zeros, as an NBD client does, or a program that punches a hole.
    pub(crate) async fn write_zeroes(
        &self,
        offset_bytes: u64,
        length: u64,
        fua: bool,
    ) -> Result<(), Refusal> {
        if let Some(descriptor) = self.descriptor() {
            return files::write_zeroes(descriptor, offset_bytes, length, fua).await;
        }
        stripewise_export::write_zeroes(&self.export(), offset_bytes, length, fua).await.map_err(refused)
    }

    fn export(&self) -> VolumeExport {
        VolumeExport::new(self.volume.clone(), false)
    }
}
