//! The README shows what is there.

const README: &str = include_str!("../README.md");

#[test]
fn the_readme_shows_the_example_hello() {
    let hello = include_str!("../examples/hello.rs");
    let (_title, program) = hello.split_once("\n\n").expect("a title, then the program");
    assert!(
        README.contains(program),
        "README.md does not show examples/hello.rs as it is"
    );
}

#[test]
fn the_commands_of_the_readme_exist() {
    for command in ["ci/demo", "ci/test", "benches/syscalls"] {
        assert!(README.contains(command), "{command} is not in the README");
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(command);
        assert!(path.exists(), "{command} does not exist");
    }
}

#[test]
fn the_files_that_documents_link_to_exist() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    for document in ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"] {
        let text = std::fs::read_to_string(root.join(document)).expect("a document");
        let links = text.split("](").skip(1);
        for link in links.filter_map(|rest| rest.split(')').next()) {
            let is_elsewhere = link.contains("://") || link.starts_with('#');
            assert!(
                is_elsewhere || root.join(link).exists(),
                "{document} links to {link}, which does not exist"
            );
        }
    }
}
