//! The CNI plugin. See the library.

fn main() -> std::process::ExitCode {
    osmia_cni::run()
}
