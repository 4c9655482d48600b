# shellcheck shell=bash
build_siw() { die "$EXIT_SKIP" "siw: not yet"; }
