//! The table of field reports names tests that are there, and every report has a line.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

const TABLE: &str = include_str!("field-reports.md");

/// The reports that concern this library.
const REPORTS: &[u32] = &[
    1, 2, 4, 5, 6, 7, 8, 10, 11, 12, 13, 15, 16, 17, 19, // lifetime and order
    20, 22, 23, 24, 25, 26, 27, 28, 30, 31, 32, 34, 35, 37, 38, // events
    39, 40, 41, 42, 43, 45, 47, 48, 49, 50, 52, // ABI
    53, 54, 55, 56, 59, 60, 61, 63, 64, 66, 67, // addresses
    68, 69, 70, 71, 72, 73, 74, 76, 77, 78, 80, 81, 83, 84, 86, 88, 89, 90, 91, // limits
    92, 93, 94, 95, 97, 98, // concurrency
    100, 101, 103, 104, 106, // fork and exec
    107, 109, 110, // performance
    112, 113, 114, 115, 116, 118, 119, 120, 121, // documentation
    123, 124, 125, 126, 128, 129, 131, 133, 134, 135, // streams
    137, 138, 139, 140, 141, // found on our own machines
];

/// The lines of the table: what is in the column of tests, by the report's number.
fn lines() -> BTreeMap<u32, &'static str> {
    let mut lines = BTreeMap::new();
    for line in TABLE.lines().filter(|line| line.starts_with("| F")) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [report, _situation, tests] = cells[..] else {
            panic!("not three cells: {line}");
        };
        let number = report[1..].parse().expect("a number after the F");
        assert_eq!(lines.insert(number, tests), None, "F{number} comes twice");
    }
    lines
}

/// What stands in backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

#[test]
fn every_report_has_a_line() {
    let numbers: Vec<u32> = lines().into_keys().collect();
    assert_eq!(numbers, REPORTS);
}

#[test]
fn every_line_names_a_test_or_says_why_not() {
    for (number, tests) in lines() {
        let says_why_not = ["open", "later"].iter().any(|word| tests.contains(word));
        let names_one = quoted(tests).next().is_some();
        assert!(names_one || says_why_not, "F{number:02}: {tests}");
    }
}

#[test]
fn every_test_of_the_table_exists() {
    let missing: Vec<String> = lines()
        .into_iter()
        .flat_map(|(number, tests)| quoted(tests).map(move |test| (number, test)))
        .filter(|(_, test)| !exists(test))
        .map(|(number, test)| format!("F{number:02}: {test}"))
        .collect();
    assert!(missing.is_empty(), "\n{}", missing.join("\n"));
}

/// Whether there is a test of this path: `vm::MODULE::NAME` below `tests`, `MODULE::NAME` below `src`.
fn exists(test: &str) -> bool {
    let Some((module, name)) = test.rsplit_once("::") else {
        return false;
    };
    let top = match module.starts_with("vm::") {
        true => "tests",
        false => "src",
    };
    files_of(top, module).iter().any(|source| {
        source.contains(&format!("fn {name}(")) || source.contains(&format!("mod {name}"))
    })
}

/// The text of the files that a module may be in. A module of tests may be within its parent's file.
fn files_of(top: &str, module: &str) -> Vec<String> {
    let path = module.replace("::", "/");
    let parent = path.strip_suffix("/tests");
    [Some(path.as_str()), parent]
        .into_iter()
        .flatten()
        .flat_map(|path| [format!("{path}.rs"), format!("{path}/mod.rs")])
        .filter_map(|file| {
            let root = Path::new(env!("CARGO_MANIFEST_DIR"));
            fs::read_to_string(root.join(top).join(file)).ok()
        })
        .collect()
}
