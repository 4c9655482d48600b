//! What the instructions of a call do: how many were compiled from each function of ours.
//!
//! A function that was inlined counts as itself. What was compiled from a function of the standard
//! library or of another crate counts for the function of ours that it was inlined into.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;

use addr2line::Loader;

use crate::tracer::steps::Steps;

/// Where our sources are.
const HOME: &str = env!("CARGO_MANIFEST_DIR");

/// As many functions of a call are printed by their names.
const NAMED: usize = 16;

/// Finds the functions that addresses of a process were compiled from.
pub struct Sources {
    files: Vec<MappedFile>,
    /// What was found before.
    known: BTreeMap<u64, Function>,
}

/// A file that a process has mapped.
struct MappedFile {
    path: String,
    begin: u64,
    end: u64,
    /// Not read before an address lies in it.
    debug_info: Option<Loader>,
}

/// A function: the file it is in, and its name there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Function {
    file: String,
    name: String,
}

/// How many instructions were compiled from each function.
#[derive(Debug, Default)]
pub struct Split(BTreeMap<Function, i64>);

impl Sources {
    /// By what `/proc/PID/maps` says of the process.
    pub fn of(maps: &str) -> Result<Self, Box<dyn Error>> {
        let mut files: Vec<MappedFile> = Vec::new();
        for line in maps.lines() {
            let mut words = line.split_whitespace();
            let (range, path) = (words.next(), words.nth(4));
            let (Some(range), Some(path)) = (range, path.filter(|path| path.starts_with('/')))
            else {
                continue;
            };
            let (begin, end) = range.split_once('-').ok_or("a mapping has no range")?;
            let begin = u64::from_str_radix(begin, 16)?;
            let end = u64::from_str_radix(end, 16)?;
            match files.last_mut().filter(|last| last.path == path) {
                Some(last) => last.end = end,
                // The mapping of its beginning comes first.
                None => files.push(MappedFile {
                    path: path.to_owned(),
                    begin,
                    end,
                    debug_info: None,
                }),
            }
        }
        Ok(Self {
            files,
            known: BTreeMap::new(),
        })
    }

    /// What a call does besides what the marks around it do.
    pub fn split(&mut self, call: &Steps, marks: &Steps) -> Result<Split, Box<dyn Error>> {
        let mut split = Split::default();
        for (steps, one) in [(call, 1), (marks, -1)] {
            for address in &steps.addresses {
                *split.0.entry(self.function(*address)?).or_default() += one;
            }
        }
        Ok(split)
    }

    fn function(&mut self, address: u64) -> Result<Function, Box<dyn Error>> {
        if let Some(function) = self.known.get(&address) {
            return Ok(function.clone());
        }
        let mut files = self.files.iter_mut();
        let file = files
            .find(|file| (file.begin..file.end).contains(&address))
            .ok_or_else(|| format!("{address:#x} is in no file"))?;
        let function = file.function(address)?;
        self.known.insert(address, function.clone());
        Ok(function)
    }
}

impl MappedFile {
    /// The innermost function of ours that is at an address, if there is one.
    fn function(&mut self, address: u64) -> Result<Function, Box<dyn Error>> {
        let debug_info = match &mut self.debug_info {
            Some(debug_info) => debug_info,
            none => none.insert(Loader::new(&self.path).map_err(|error| error.to_string())?),
        };
        // Programs and libraries can be put anywhere, so their own addresses begin at 0.
        let address = address - self.begin;
        let mut frames = debug_info.find_frames(address)?;
        while let Some(frame) = frames.next()? {
            let path = frame.location.as_ref().and_then(|location| location.file);
            let file = path.and_then(|path| Path::new(path).strip_prefix(HOME).ok());
            if let (Some(file), Some(function)) = (file, &frame.function) {
                return Ok(Function {
                    file: file.to_string_lossy().into_owned(),
                    name: short(&function.demangle()?),
                });
            }
        }
        let file = Path::new(&self.path).file_name().unwrap_or_default();
        Ok(Function {
            file: file.to_string_lossy().into_owned(),
            name: "no line of ours".to_owned(),
        })
    }
}

/// The last part of a function's path, of a closure that of the function it is in, and without the
/// types of a generic one.
fn short(path: &str) -> String {
    let mut depth = 0;
    let plain: String = path
        .chars()
        .filter(|c| {
            depth += i32::from(*c == '<');
            let is_outside = depth == 0;
            depth -= i32::from(*c == '>');
            is_outside
        })
        .collect();
    let parts = plain.split("::").filter(|part| !part.starts_with('{'));
    parts.last().unwrap_or(path).to_owned()
}

impl Split {
    /// Prints the functions with the most instructions, for each of `count` requests or completions.
    pub fn print(&self, count: u64) {
        let mut lines: Vec<(&Function, i64)> = self
            .0
            .iter()
            .map(|(function, instructions)| (function, *instructions))
            .filter(|(_, instructions)| *instructions != 0)
            .collect();
        lines.sort_by_key(|(_, instructions)| -instructions);
        let each = |instructions: i64| instructions as f64 / count as f64;
        let (named, others) = lines.split_at(lines.len().min(NAMED));
        for (Function { file, name }, instructions) in named {
            println!("{:>8.1}  {file}: {name}", each(*instructions));
        }
        if !others.is_empty() {
            let rest = others.iter().map(|(_, instructions)| instructions).sum();
            println!("{:>8.1}  {} others", each(rest), others.len());
        }
    }
}
