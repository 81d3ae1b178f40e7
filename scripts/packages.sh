# The Debian and Ubuntu packages that the verbs of ./dev need, and how they get here. Sourced.

# Boost.JSON came after Debian 12's default Boost (1.74): take the newest versioned package there is.
boost_version() {
  local version
  for version in 1.88 1.83 1.81; do
    if apt-cache show "libboost-json$version-dev" >/dev/null 2>&1; then
      echo "$version"
      return
    fi
  done
  echo 1.81
}

if command -v apt-get >/dev/null; then
  boost=$(boost_version)
  build_packages="g++ cmake ninja-build pkg-config libboost$boost-dev libboost-json$boost-dev libssl-dev zlib1g-dev
    libpcre2-dev libutf8proc-dev libcli11-dev libhwloc-dev"
else
  build_packages=""
fi
model_packages="python3 python3-pip"
test_packages="ccache mold libgtest-dev libgmock-dev googletest python3 python3-pip python3-venv"
sanitizer_packages="$test_packages"
aarch64_packages="g++ g++-aarch64-linux-gnu qemu-user-static cmake ninja-build googletest ccache"
fuzz_packages="clang-19 libclang-rt-19-dev"
lint_packages="clang-format-19 clang-tidy-19"
bench_packages="python3-venv"

# need PACKAGE...: installs what is missing, saying so.
need() {
  command -v apt-get >/dev/null || return 0
  local missing=() package
  for package in "$@"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
  done
  # A python3 from elsewhere brings its own pip and venv.
  if python3 -c 'import pip, venv, ensurepip' 2>/dev/null; then
    local kept=()
    for package in "${missing[@]}"; do
      case "$package" in python3 | python3-pip | python3-venv) ;; *) kept+=("$package") ;; esac
    done
    missing=("${kept[@]}")
  fi
  [ ${#missing[@]} -eq 0 ] && return 0
  echo "Installing packages: ${missing[*]}" >&2
  local root=()
  if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
      echo "Please install them as root: apt-get install ${missing[*]}" >&2
      exit 1
    fi
    root=(sudo)
  fi
  "${root[@]}" apt-get update -qq >&2
  "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >&2
}

sources() { git ls-files -- 'src/*.cpp' 'src/*.h' 'tests/*.cpp' 'tests/*.h' 'bench/*.cpp' 'bench/*.h'; }

# A compiler cache serves every checkout: paths are stored relative to the root.
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1 CCACHE_MAXSIZE=5G
