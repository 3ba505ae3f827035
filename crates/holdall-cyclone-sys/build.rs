//! Builds Cyclone DDS and the C files of this crate, and makes their Rust declarations.

use std::{env, path::PathBuf};

fn main() {
    println!("cargo:rerun-if-changed=c");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let own = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("c");
    let is_secured = env::var_os("CARGO_FEATURE_SECURITY").is_some();
    let switch = |on: bool| if on { "ON" } else { "OFF" };
    let mut cyclone = cmake::Config::new(&own);
    cyclone
        // Assertions change the layout of some structs, and the receive path must not depend on Rust's profile.
        .profile("Release")
        .define("CYCLONE_SOURCE", cyclonedds_src::source_dir())
        .define("BUILD_SHARED_LIBS", "OFF")
        .define("CMAKE_POSITION_INDEPENDENT_CODE", "ON")
        .define("CMAKE_INSTALL_LIBDIR", "lib")
        .define("BUILD_IDLC", "OFF")
        .define("BUILD_DDSPERF", "OFF")
        .define("BUILD_TESTING", "OFF")
        .define("ENABLE_LTO", "OFF")
        .define("ENABLE_ICEORYX", "OFF")
        .define("ENABLE_ICEORYX2", "OFF")
        // Cyclone is built without TCP.
        .define("ENABLE_TCP_TLS", "OFF")
        .define("ENABLE_SSL", switch(is_secured))
        .define("ENABLE_SECURITY", switch(is_secured));
    // Nothing is linked with OpenSSL: its headers are enough, which for another computer than this one are in a folder of their own.
    println!("cargo:rerun-if-env-changed=OPENSSL_INCLUDE_DIR");
    if let Some(headers) = env::var_os("OPENSSL_INCLUDE_DIR").filter(|_| is_secured) {
        let library = own.join("libempty.a");
        cyclone
            .define("OPENSSL_INCLUDE_DIR", headers)
            .define("OPENSSL_CRYPTO_LIBRARY", &library)
            .define("OPENSSL_SSL_LIBRARY", &library);
    }
    let built = cyclone.build();
    println!("cargo:rustc-link-search=native={}", built.join("lib").display());
    println!("cargo:rustc-link-lib=static=ddsc");
    let bindings = bindgen::Builder::default()
        .header(own.join("bindings.h").to_string_lossy())
        .clang_arg(format!("-I{}", built.join("include").display()))
        .clang_arg("-DNDEBUG")
        .allowlist_function("(dds|ddsi|ddsrt|holdall)_.*")
        .allowlist_type("(dds|ddsi|ddsrt|holdall)_.*")
        .allowlist_var("(DDS|DDSI|HOLDALL|ddsi)_.*")
        // Those that Cyclone also compiles as functions.
        .generate_inline_functions(true)
        .layout_tests(false)
        .generate_comments(false)
        .generate()
        .expect("Cyclone's headers can be read");
    bindings
        .write_to_file(out.join("bindings.rs"))
        .expect("the build folder can be written");
}
