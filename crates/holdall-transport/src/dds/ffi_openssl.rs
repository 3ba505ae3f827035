//! OpenSSL's functions for Cyclone DDS's security plugins, loaded from the system's library only when a domain is secured.
//!
//! A program that is linked with OpenSSL does not start where that library is missing, and loads it also when nothing is secured. So each
//! function that Cyclone calls has a stub here, which jumps to where a slot points. The stubs are linked before OpenSSL, which the linker
//! then does not need (docs/adr/0024). [`load`] fills the slots; before that they end the process.
//!
//! The names are those that `libddsc.a` of `cyclors` 0.4.0 lacks. One that is missing here would be linked as usual: a test finds that.

use std::ffi::{CStr, c_void};

/// The name of OpenSSL 3 on Linux. Its rules for names allow no other major version.
const LIBRARIES: [&CStr; 2] = [c"libcrypto.so.3", c"libssl.so.3"];

macro_rules! stubs {
    ($($name:ident)*) => {
        /// The functions, in the order of their slots.
        const NAMES: &[&str] = &[$(stringify!($name)),*];

        // SAFETY: each stub jumps with all registers as its caller has set them, to what its slot has: `not_loaded`, or the function of
        // the same name. The names are hidden: no other library of this process can find a stub in place of the real function.
        std::arch::global_asm!(
            ".pushsection .data.holdall_openssl,\"aw\",@progbits",
            ".p2align 3",
            ".globl holdall_openssl_slots",
            ".hidden holdall_openssl_slots",
            "holdall_openssl_slots:",
            $(concat!(".Lholdall_slot_", stringify!($name), ": .quad {not_loaded}"),)*
            ".popsection",
            ".pushsection .text.holdall_openssl,\"ax\",@progbits",
            $(
                concat!(".globl ", stringify!($name)),
                concat!(".hidden ", stringify!($name)),
                concat!(".type ", stringify!($name), ",@function"),
                concat!(stringify!($name), ":"),
                jump!(stringify!($name)),
            )*
            ".popsection",
            not_loaded = sym not_loaded,
        );
    };
}

#[cfg(target_arch = "x86_64")]
macro_rules! jump {
    ($name:expr) => {
        concat!("jmp qword ptr [rip + .Lholdall_slot_", $name, "]")
    };
}

// x16 is for such jumps; no caller keeps anything in it.
#[cfg(target_arch = "aarch64")]
macro_rules! jump {
    ($name:expr) => {
        concat!(
            "adrp x16, .Lholdall_slot_",
            $name,
            "\n",
            "ldr x16, [x16, #:lo12:.Lholdall_slot_",
            $name,
            "]\n",
            "br x16"
        )
    };
}

// On other processors the program is linked with OpenSSL.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
stubs! {
    ASN1_INTEGER_free ASN1_INTEGER_to_BN ASN1_TIME_diff BIO_ctrl BIO_free BIO_gets BIO_int_ctrl
    BIO_new BIO_new_mem_buf BIO_pop BIO_s_accept BIO_s_mem BIO_vfree BIO_write BN_bn2nativepad
    BN_free BN_num_bits BN_to_ASN1_INTEGER CRYPTO_free ERR_error_string ERR_print_errors
    EVP_CIPHER_CTX_ctrl EVP_CIPHER_CTX_free EVP_CIPHER_CTX_new EVP_DecryptFinal_ex
    EVP_DecryptInit_ex EVP_DecryptUpdate EVP_DigestSignFinal EVP_DigestSignInit EVP_DigestSignUpdate
    EVP_DigestVerifyFinal EVP_DigestVerifyInit EVP_DigestVerifyUpdate EVP_EncryptFinal_ex
    EVP_EncryptInit_ex EVP_EncryptUpdate EVP_MD_CTX_free EVP_MD_CTX_new EVP_PKEY_CTX_free
    EVP_PKEY_CTX_new EVP_PKEY_CTX_new_from_name EVP_PKEY_CTX_new_from_pkey EVP_PKEY_CTX_new_id
    EVP_PKEY_CTX_set_ec_paramgen_curve_nid EVP_PKEY_CTX_set_params EVP_PKEY_CTX_set_rsa_padding
    EVP_PKEY_copy_parameters EVP_PKEY_derive EVP_PKEY_derive_init EVP_PKEY_derive_set_peer
    EVP_PKEY_free EVP_PKEY_fromdata EVP_PKEY_fromdata_init EVP_PKEY_get_bits EVP_PKEY_get_bn_param
    EVP_PKEY_get_id EVP_PKEY_get_octet_string_param EVP_PKEY_keygen EVP_PKEY_keygen_init
    EVP_PKEY_paramgen EVP_PKEY_paramgen_init EVP_PKEY_private_check EVP_PKEY_public_check
    EVP_aes_128_gcm EVP_aes_256_gcm EVP_get_digestbyname EVP_sha256 HMAC OPENSSL_init_crypto
    OPENSSL_sk_free OPENSSL_sk_new_null OPENSSL_sk_push OSSL_PARAM_construct_BN
    OSSL_PARAM_construct_end OSSL_PARAM_construct_octet_string OSSL_PARAM_construct_utf8_string
    OSSL_PROVIDER_available OSSL_PROVIDER_try_load OSSL_PROVIDER_unload OSSL_STORE_INFO_free
    OSSL_STORE_INFO_get1_CERT OSSL_STORE_INFO_get1_CRL OSSL_STORE_INFO_get1_PKEY
    OSSL_STORE_INFO_get_type OSSL_STORE_close OSSL_STORE_error OSSL_STORE_load OSSL_STORE_open
    PEM_read_bio_PrivateKey PEM_read_bio_X509 PEM_read_bio_X509_CRL PEM_write_bio_X509 PKCS7_free
    PKCS7_verify RAND_bytes RAND_load_file SHA256 SMIME_read_PKCS7 X509_CRL_free X509_NAME_oneline
    X509_NAME_print_ex X509_STORE_CTX_free X509_STORE_CTX_get_current_cert X509_STORE_CTX_get_error
    X509_STORE_CTX_init X509_STORE_CTX_new X509_STORE_CTX_set_flags X509_STORE_add_cert
    X509_STORE_add_crl X509_STORE_free X509_STORE_new X509_cmp_current_time X509_digest X509_free
    X509_get0_notAfter X509_get0_notBefore X509_get_issuer_name X509_get_pubkey
    X509_get_subject_name X509_verify_cert X509_verify_cert_error_string d2i_ASN1_INTEGER
    i2d_ASN1_INTEGER i2d_X509_NAME

    OPENSSL_init_ssl SSL_CTX_free SSL_CTX_load_verify_locations SSL_CTX_new SSL_CTX_set_cipher_list
    SSL_CTX_set_default_passwd_cb SSL_CTX_set_default_passwd_cb_userdata SSL_CTX_set_options
    SSL_CTX_set_verify SSL_CTX_use_PrivateKey_file SSL_CTX_use_certificate_file SSL_accept
    SSL_connect SSL_free SSL_get1_peer_certificate SSL_get_error SSL_get_shutdown SSL_get_version
    SSL_new SSL_read SSL_set_bio SSL_set_fd SSL_write TLS_method
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
unsafe extern "C" {
    /// The first slot; there is one for each name.
    static mut holdall_openssl_slots: *mut c_void;
}

/// The content of a slot before [`load`].
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
extern "C" fn not_loaded() -> ! {
    tracing::error!(
        "Cyclone DDS is configured for security or TLS, which needs OpenSSL 3, and it cannot be loaded"
    );
    std::process::abort()
}

/// Loads OpenSSL, once for the process.
///
/// # Errors
/// One sentence, where the system has no OpenSSL 3 or one that lacks a function.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(super) fn load() -> Result<(), String> {
    static LOADED: std::sync::OnceLock<Result<(), String>> = std::sync::OnceLock::new();
    LOADED.get_or_init(fill_slots).clone()
}

/// Loads nothing: the program is linked with it.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(super) fn load() -> Result<(), String> {
    Ok(())
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn fill_slots() -> Result<(), String> {
    let mut handles = Vec::new();
    for library in LIBRARIES {
        // SAFETY: the name ends with NUL; the libraries call nothing of this program, and stay for the rest of the process.
        let handle = unsafe { libc::dlopen(library.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            let reason = last_error();
            return Err(format!(
                "DDS security needs OpenSSL 3, which cannot be loaded: {reason}"
            ));
        }
        handles.push(handle);
    }
    let find = |name: &str| {
        let name = std::ffi::CString::new(name).ok()?;
        // SAFETY: handle and name are valid.
        let mut addresses = handles
            .iter()
            .map(|handle| unsafe { libc::dlsym(*handle, name.as_ptr()) });
        addresses.find(|address| !address.is_null())
    };
    let lacks = |name| format!("DDS security needs OpenSSL 3, and the one found here lacks {name}");
    let replaced =
        super::ffi_handshake::replacements(&find).ok_or_else(|| lacks("functions of ASN.1 integers"))?;
    let mut found = Vec::with_capacity(NAMES.len());
    for name in NAMES {
        let ours = replaced.iter().find(|(replaced, _)| replaced == name);
        let address = ours.map(|(_, address)| *address).or_else(|| find(name));
        found.push(address.ok_or_else(|| lacks(name))?);
    }
    for (index, address) in found.into_iter().enumerate() {
        // SAFETY: the assembly above reserves a slot for each name; stubs read a slot as one word, before or after.
        unsafe {
            (&raw mut holdall_openssl_slots)
                .add(index)
                .write_volatile(address)
        };
    }
    Ok(())
}

/// Why the last `dlopen` of this thread failed.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn last_error() -> String {
    // SAFETY: `dlerror` returns null or a text that is valid until the next call on this thread.
    unsafe {
        let error = libc::dlerror();
        if error.is_null() {
            return "no reason is known".to_owned();
        }
        CStr::from_ptr(error).to_string_lossy().into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_s_openssl_has_every_function() {
        assert_eq!(load(), Ok(()));
        assert_eq!(load(), Ok(()), "once more");
    }
}
