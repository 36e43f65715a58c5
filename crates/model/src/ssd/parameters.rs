//! The description of a solid-state drive.

use crate::hdd::ParameterError;

/// A solid-state drive.
#[derive(Clone, Debug, PartialEq)]
pub struct SsdParameters {
    /// Usable capacity.
    pub capacity_bytes: u64,
    /// The unit of mapping, reading and programming.
    pub page_bytes: u32,
    /// Pages that are erased together.
    pub pages_per_block: u32,
    /// Buses to the dies.
    pub channels: u32,
    /// Dies on each.
    pub dies_per_channel: u32,
    /// From the cells into the die's register.
    pub read_us: f64,
    /// The other way.
    pub program_us: f64,
    /// Erase time of a block.
    pub erase_us: f64,
    /// Rate of one channel.
    pub channel_mb_per_s: f64,
    /// The cable or PCIe lanes.
    pub interface_mb_per_s: f64,
    /// The controller's work for each command; it does one after another.
    pub command_us: f64,
    /// Further latency of a command, which overlaps with that of others.
    pub latency_us: f64,
    /// Depth of the command queue.
    pub queue_depth: u32,
    /// Physical pages beyond the logical ones, as a share of these.
    pub over_provisioning_percent: f64,
    /// Acknowledged writes that are not programmed yet; zero: writes end in the cells.
    pub write_cache_kib: u32,
}

impl SsdParameters {
    /// Refuses impossible descriptions.
    pub fn check(&self) -> Result<(), ParameterError> {
        let within = |name: &str, value: f64, low: f64, high: f64| match value >= low && value <= high {
            true => Ok(()),
            false => Err(ParameterError::new(name, format!("{value} is not within {low} to {high}"))),
        };
        within("capacity_bytes", self.capacity_bytes as f64, 1e6, 1e15)?;
        within("page_bytes", self.page_bytes.into(), 512.0, 65_536.0)?;
        if !self.page_bytes.is_power_of_two() {
            return Err(ParameterError::new(
                "page_bytes",
                format!("{} is not a power of two", self.page_bytes),
            ));
        }
        within("pages_per_block", self.pages_per_block.into(), 8.0, 65_536.0)?;
        within("channels", self.channels.into(), 1.0, 1024.0)?;
        within("dies_per_channel", self.dies_per_channel.into(), 1.0, 1024.0)?;
        within("read_us", self.read_us, 0.0, 1e6)?;
        within("program_us", self.program_us, 0.0, 1e6)?;
        within("erase_us", self.erase_us, 0.0, 1e6)?;
        within("channel_mb_per_s", self.channel_mb_per_s, 0.1, 1e5)?;
        within("interface_mb_per_s", self.interface_mb_per_s, 0.1, 1e6)?;
        within("command_us", self.command_us, 0.0, 1e6)?;
        within("latency_us", self.latency_us, 0.0, 1e6)?;
        within("queue_depth", self.queue_depth.into(), 1.0, 1e6)?;
        within("over_provisioning_percent", self.over_provisioning_percent, 1.0, 1000.0)?;
        within("write_cache_kib", self.write_cache_kib.into(), 0.0, 1e8)
    }
}
