# shellcheck shell=bash
# Debian packages without installing them: a private apt (own sources, index and state below target/vm/apt), so that
# the guest is the same on every host. Sourced, not run.

debian_mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
debian_security_mirror=${DEBIAN_SECURITY_MIRROR:-http://deb.debian.org/debian-security}
debian_keyring=/usr/share/keyrings/debian-archive-keyring.gpg

# The package sources, by name. `stable` holds the guest's programs and most kernels; the others are asked, in this
# order, for kernels that it lacks.
package_sources=(stable backports unstable)

sources_of() {
    local options="[arch=amd64 target=Packages signed-by=$debian_keyring]"
    case $1 in
    stable)
        echo "deb $options $debian_mirror bookworm main"
        echo "deb $options $debian_security_mirror bookworm-security main"
        ;;
    backports) echo "deb $options $debian_mirror trixie-backports main" ;;
    unstable) echo "deb $options $debian_mirror sid main" ;;
    esac
}

# Runs an apt tool on one of the private sources: private_apt SOURCE TOOL ARGUMENT...
private_apt() {
    local dir=$vm_dir/apt/$1 tool=$2
    shift 2
    LC_ALL=C "$tool" -c "$dir/apt.conf" "$@"
}

# Sets a source up and refreshes its index when that is a day old. Fails when there is no index to be had.
refresh_source() {
    local dir=$vm_dir/apt/$1
    mkdir -p "$dir/state/lists/partial" "$dir/cache/archives/partial"
    : >"$dir/status"
    sources_of "$1" >"$dir/sources.list"
    cat >"$dir/apt.conf" <<END
Dir::Etc::SourceList "$dir/sources.list";
Dir::Etc::SourceParts "/dev/null";
Dir::Etc::Preferences "/dev/null";
Dir::Etc::PreferencesParts "/dev/null";
Dir::State "$dir/state";
Dir::State::status "$dir/status";
Dir::Cache "$dir/cache";
Acquire::Languages "none";
Acquire::Retries "2";
APT::Architecture "amd64";
APT::Architectures { "amd64"; };
APT::Sandbox::User "root";
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
END
    [[ -z $(find "$dir/refreshed" -mmin -1440 2>/dev/null) ]] || return 0
    say "refreshing Debian's package index ($1)"
    if private_apt "$1" apt-get -qq -o APT::Update::Error-Mode=any update >"$dir/update.log" 2>&1; then
        touch "$dir/refreshed"
    elif [[ -e $dir/refreshed ]]; then
        say "could not refresh the index ($1), going on with the old one"
    else
        sed 's/^/    /' "$dir/update.log" >&2
        return 1
    fi
}

# Prints what a command prints, and runs it only once for every refresh of the source's index: apt takes a second or
# two for each question. remember SOURCE NAME COMMAND...
remember() {
    local source=$1 answer=$vm_dir/apt/$1/answer-$2
    shift 2
    if [[ ! $answer -nt $vm_dir/apt/$source/refreshed ]]; then
        "$@" >"$answer.part"
        mv "$answer.part" "$answer"
    fi
    cat "$answer"
}

# Prints the .deb files of the named packages, downloading those that are not in the cache yet.
# fetch_packages SOURCE NAME...
fetch_packages() {
    local source=$1 debs=$vm_dir/debs uris file size rest name missing=() total=0
    shift
    mkdir -p "$debs"
    uris=$(private_apt "$source" apt-get -qq download --print-uris "$@")
    while read -r _ file size rest; do
        echo "$debs/$file"
        [[ -e $debs/$file ]] && continue
        name=${file%%_*}
        missing+=("$name")
        total=$((total + size))
    done <<<"$uris"
    ((${#missing[@]})) || return 0
    local what=${missing[0]}
    ((${#missing[@]} == 1)) || what+=" and $((${#missing[@]} - 1)) more packages"
    say "fetching $what: $(((total + 500000) / 1000000)) MB"
    (cd "$debs" && private_apt "$source" apt-get -qq download "${missing[@]}") >&2
}

# Prints the names of the packages that the named ones need to run, themselves included.
# package_closure SOURCE NAME...
package_closure() {
    local source=$1
    shift
    private_apt "$source" apt-get -qq install --print-uris --no-install-recommends "$@" |
        sed -n "s|^'[^']*' \([^_]*\)_.*|\1|p"
}

# Prints "SOURCE VERSION" for the newest kernel of a series such as 6.12 or 7; VERSION is what `uname -r` will say.
find_kernel() {
    local series=$1 source version
    for source in "${package_sources[@]}"; do
        if ! refresh_source "$source"; then
            say "no package index from $source"
            continue
        fi
        version=$(remember "$source" kernels private_apt "$source" apt-cache pkgnames linux-image- |
            sed -En "s/^linux-image-(${series//./\\.}\.[0-9.]+([-+][0-9a-z.+~]+)*-amd64)$/\1/p" |
            grep -Ev -- '-(cloud|rt)-' | sort -V | tail -n 1) || true # none
        if [[ $version ]]; then
            echo "$source $version"
            return 0
        fi
    done
    return 1
}
