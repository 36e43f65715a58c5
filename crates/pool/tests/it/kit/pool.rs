//! Shared parts of the pool tests: drives in memory, an executor in virtual time, contents of which
//! every byte can be checked, and drives whose power is cut at a chosen write.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use stripewise_drive::{
    Buffer, BufferPool, Completion, CompletionSender, Context, CrashDrive, Drive, DriveErrorKind, DriveInfo,
    DriveKind, IoRequest, MemoryDrive, Operation, completion,
};
use stripewise_layout::LayoutSpec;
use stripewise_pool::{
    DrawnShards, DriveId, OpenMode, Pool, PoolError, PoolOptions, PoolSpec, PoolStatus, Volume, VolumeSpec,
};
use stripewise_runtime::VirtualExecutor;

pub const MIB: u64 = 1 << 20;

/// One life of the process: an executor, and the parameters of every pool.
pub struct Life {
    pub executor: VirtualExecutor,
    pub context: Context,
    pub buffers: BufferPool,
}

impl Life {
    pub fn new() -> Self {
        let executor = VirtualExecutor::new();
        let context = executor.context();
        Self { executor, context, buffers: BufferPool::new(16 << 20) }
    }

    pub fn run<T>(&self, future: impl Future<Output = T>) -> T {
        self.executor.block_on(future)
    }

    pub async fn create(
        &self,
        drives: &[Rc<dyn Drive>],
        spares: &[Rc<dyn Drive>],
    ) -> Result<Pool, PoolError> {
        Pool::create(&self.context, &self.buffers, spec("tank", drives, spares)).await
    }

    pub async fn open(&self, drives: &[Rc<dyn Drive>]) -> Result<Pool, PoolError> {
        self.open_as(drives, OpenMode::ReadWrite).await
    }

    /// Opens a pool whose arrays are on another shard than the pool, where those of a new one are
    /// on the same.
    pub async fn open_as(&self, drives: &[Rc<dyn Drive>], mode: OpenMode) -> Result<Pool, PoolError> {
        let drawn_shards = Some(DrawnShards { shards: 2, seed: 7 });
        let options = PoolOptions { drawn_shards, ..options(7) };
        Pool::open(&self.context, &self.buffers, drives.to_vec(), mode, options).await
    }
}

pub fn options(seed: u64) -> PoolOptions {
    PoolOptions { id_seed: Some(seed), ..PoolOptions::default() }
}

pub fn spec(name: &str, drives: &[Rc<dyn Drive>], spares: &[Rc<dyn Drive>]) -> PoolSpec {
    let options = options(name.bytes().map(u64::from).sum());
    PoolSpec {
        name: name.to_owned(),
        drives: drives.to_vec(),
        spares: spares.to_vec(),
        options,
        ..PoolSpec::default()
    }
}

pub fn memory_drives(count: usize, mib: u64) -> Vec<Rc<MemoryDrive>> {
    (0..count).map(|index| MemoryDrive::new(&format!("drive{index}"), mib * MIB)).collect()
}

pub fn as_drives<D: Drive + 'static>(drives: &[Rc<D>]) -> Vec<Rc<dyn Drive>> {
    drives.iter().map(|drive| drive.clone() as Rc<dyn Drive>).collect()
}

pub fn volume_spec(name: &str, layout: &str, size_bytes: Option<u64>) -> VolumeSpec {
    let mut layout = LayoutSpec::parse(layout).expect("a layout's name");
    layout.interleave_bytes = Some(64 << 10);
    VolumeSpec { size_bytes, ..VolumeSpec::new(name, layout) }
}

/// Creates a volume and writes all of it.
pub async fn full_volume(pool: &Pool, spec: VolumeSpec, seed: u64) -> Volume {
    let volume = pool.create_volume(spec).await.expect("a volume");
    fill(&volume, seed, 0, volume.capacity_bytes()).await;
    volume
}

/// Contents that the tests write: a function of the seed and the offset.
pub fn contents(seed: u64, offset: u64, length: usize) -> Vec<u8> {
    let word = |at: u64| {
        let mut x = (at / 8).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ seed.wrapping_mul(0xd1b5_4a32_d192_ed03);
        x ^= x >> 29;
        x.wrapping_mul(0xbf58_476d_1ce4_e5b9)
    };
    (0..length as u64 / 8).flat_map(|index| word(offset + index * 8).to_le_bytes()).collect()
}

/// Writes a range of a volume, in pieces of at most 256 KiB.
pub async fn fill(volume: &Volume, seed: u64, offset: u64, length: u64) {
    let mut at = offset;
    while at < offset + length {
        let piece = (offset + length - at).min(256 << 10);
        let data = Buffer::from_bytes(&contents(seed, at, piece as usize));
        volume.write(at, data, false).await.expect("written");
        at += piece;
    }
}

/// Checks that a range of a volume holds what [`fill`] wrote; the error names the first difference.
pub async fn holds(volume: &Volume, seed: u64, offset: u64, length: u64) -> Result<(), String> {
    let mut at = offset;
    while at < offset + length {
        let piece = (offset + length - at).min(256 << 10);
        let read = volume.read(at, piece as usize).await.map_err(|error| format!("at {at}: {error}"))?;
        let expected = contents(seed, at, piece as usize);
        if read.to_vec() != expected {
            let read = read.to_vec();
            let wrong = (0..read.len()).find(|&index| read[index] != expected[index]).expect("they differ");
            return Err(format!("wrong at {}", at + wrong as u64));
        }
        at += piece;
    }
    Ok(())
}

/// Returns a drive's whole contents.
pub fn image(drive: &MemoryDrive) -> Vec<u8> {
    let mut bytes = vec![0; drive.info().capacity_bytes as usize];
    drive.peek(0, &mut bytes);
    bytes
}

/// Fails a drive and replaces it with another, which then has to be rebuilt.
pub async fn replace_failed(pool: &Pool, path: &str, new: &Rc<dyn Drive>) {
    let old = id_of(&pool.status(), path);
    pool.fail_drive(old, "a test").await.expect("it can be spared");
    pool.replace(old, new.clone(), false).await.expect("replaced");
}

pub fn id_of(status: &PoolStatus, path: &str) -> DriveId {
    status.drives.iter().find(|drive| drive.path == path).unwrap_or_else(|| panic!("{path} in {status:?}")).id
}

pub fn state_of(status: &PoolStatus, path: &str) -> &'static str {
    let drive = status.drives.iter().find(|drive| drive.path == path);
    drive.unwrap_or_else(|| panic!("{path} in {status:?}")).state.word()
}

type Which = Box<dyn Fn(&IoRequest) -> bool>;

/// A drive that holds back selected requests until they are released.
pub struct Holding {
    inner: Rc<MemoryDrive>,
    info: DriveInfo,
    which: RefCell<Option<Which>>,
    held: RefCell<Vec<(IoRequest, CompletionSender)>>,
}

impl Holding {
    pub fn over(inner: Rc<MemoryDrive>) -> Rc<Self> {
        // Drives in memory are expected to answer at once.
        let info = DriveInfo { kind: DriveKind::Model, ..inner.info().clone() };
        Rc::new(Self { inner, info, which: RefCell::default(), held: RefCell::default() })
    }

    /// Holds back these requests from now on, and no others: other held requests are answered.
    pub async fn hold(&self, which: impl Fn(&IoRequest) -> bool + 'static) {
        let (stays, goes): (Vec<_>, Vec<_>) =
            self.held.take().into_iter().partition(|(request, _)| which(request));
        *self.held.borrow_mut() = stays;
        *self.which.borrow_mut() = Some(Box::new(which));
        for (request, sender) in goes {
            sender.complete(self.inner.submit(request).await);
        }
    }

    /// Number of held requests that `which` selects.
    pub fn held(&self, which: impl Fn(&IoRequest) -> bool) -> usize {
        self.held.borrow().iter().filter(|(request, _)| which(request)).count()
    }
}

impl Drive for Holding {
    fn info(&self) -> &DriveInfo {
        &self.info
    }

    fn submit(&self, request: IoRequest) -> Completion {
        if !self.which.borrow().as_ref().is_some_and(|which| which(&request)) {
            return self.inner.submit(request);
        }
        let (sender, answer) = completion();
        self.held.borrow_mut().push((request, sender));
        answer
    }
}

/// All permutations of a few items.
pub fn permutations<T: Clone>(items: &[T]) -> Vec<Vec<T>> {
    if items.len() <= 1 {
        return vec![items.to_vec()];
    }
    let mut all = Vec::new();
    for index in 0..items.len() {
        let mut rest = items.to_vec();
        let first = rest.remove(index);
        for mut tail in permutations(&rest) {
            tail.insert(0, first.clone());
            all.push(tail);
        }
    }
    all
}

/// Cuts the power of all its drives at one of their writes, counted over all of them. That write is
/// in flight, as are all others submitted at the same moment: the seed decides whether each of
/// their sectors is kept, lost or torn.
pub struct Cut {
    drives: Vec<Rc<CrashDrive>>,
    /// Number of writes so far.
    writes: Cell<u64>,
    /// Number of the write at which power is cut.
    at: Cell<u64>,
    seed: u64,
    in_flight: RefCell<Vec<(IoRequest, CompletionSender)>>,
    images: RefCell<Option<Vec<Rc<MemoryDrive>>>>,
}

impl Cut {
    /// Creates drives with the contents and labels of `images`.
    pub fn over(images: &[Rc<MemoryDrive>], seed: u64) -> Rc<Self> {
        let drives = images.iter().map(|image| CrashDrive::from_image(&image.info().label, image));
        Rc::new(Self {
            drives: drives.collect(),
            writes: Cell::new(0),
            at: Cell::new(u64::MAX),
            seed,
            in_flight: RefCell::default(),
            images: RefCell::default(),
        })
    }

    pub fn drives(self: &Rc<Self>, context: &Context) -> Vec<Rc<dyn Drive>> {
        let cutting = |drive: &Rc<CrashDrive>| {
            let (context, drive, cut) = (context.clone(), drive.clone(), self.clone());
            Rc::new(CuttingDrive { context, drive, cut }) as Rc<dyn Drive>
        };
        self.drives.iter().map(cutting).collect()
    }

    /// Counts writes from 1 from now on, and cuts power at write number `at`.
    pub fn arm(&self, at: u64) {
        self.writes.set(0);
        self.at.set(at);
    }

    /// Number of writes since [`Self::arm`].
    pub fn writes(&self) -> u64 {
        self.writes.get()
    }

    /// Drives as the cut left them, or, without a cut, as one would now.
    pub fn images(&self) -> Vec<Rc<MemoryDrive>> {
        if let Some(images) = self.images.borrow().clone() {
            return images;
        }
        self.take_images()
    }

    fn take_images(&self) -> Vec<Rc<MemoryDrive>> {
        let image = |(index, drive): (usize, &Rc<CrashDrive>)| {
            drive.image_after_cut(&drive.info().label, self.seed.wrapping_mul(31) + index as u64)
        };
        self.drives.iter().enumerate().map(image).collect()
    }

    fn strike(&self) {
        *self.images.borrow_mut() = Some(self.take_images());
        for (request, sender) in self.in_flight.take() {
            sender.complete(Err(request.error(&"cut".into(), DriveErrorKind::Gone, None)));
        }
    }
}

struct CuttingDrive {
    context: Context,
    drive: Rc<CrashDrive>,
    cut: Rc<Cut>,
}

impl Drive for CuttingDrive {
    fn info(&self) -> &DriveInfo {
        self.drive.info()
    }

    fn submit(&self, request: IoRequest) -> Completion {
        let cut = &self.cut;
        if cut.images.borrow().is_some() {
            let gone = request.error(&self.info().label, DriveErrorKind::Gone, None);
            return Completion::ready(Err(gone));
        }
        if matches!(request.operation, Operation::Read | Operation::Flush) {
            return self.drive.submit(request);
        }
        cut.writes.set(cut.writes.get() + 1);
        if cut.writes.get() < cut.at.get() {
            return self.drive.submit(request);
        }
        if cut.writes.get() == cut.at.get() {
            let cut = cut.clone();
            self.context.spawn(async move { cut.strike() });
        }
        let operation = match request.operation {
            Operation::Write { .. } => Operation::Write { fua: false },
            other => other,
        };
        let header = IoRequest { segments: Default::default(), ..request };
        let _ = self.drive.submit(IoRequest { operation, ..request }).try_take();
        let (sender, answer) = completion();
        cut.in_flight.borrow_mut().push((header, sender));
        answer
    }
}
