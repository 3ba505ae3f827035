//! Files of ROS packages for viewers: the meshes and textures that a robot's description names.

use holdall_io::fs;
use std::{
    ffi::OsStr,
    path::{Component, Path, PathBuf},
};

/// Longest file that is sent.
pub(super) const ASSET_BYTES_MAX: u64 = 32 * 1024 * 1024;

/// Prefix of the name of such a file.
const SCHEME: &str = "package://";

/// Endings of descriptions, meshes, materials and textures. Other files of packages are not sent: settings may have secrets.
const EXTENSIONS: [&str; 16] = [
    "bmp", "dae", "fbx", "glb", "gltf", "jpeg", "jpg", "mtl", "obj", "png", "stl", "tif", "tiff", "urdf",
    "webp", "xacro",
];

/// Which files viewers may fetch.
#[derive(Clone, Debug, Default)]
pub(super) struct Assets {
    /// Folders with `share/PACKAGE`, the first one first.
    prefixes: Vec<PathBuf>,
}

impl Assets {
    /// Files below these folders, which `AMENT_PREFIX_PATH` names.
    pub(super) fn new(prefixes: Vec<PathBuf>) -> Self {
        Self { prefixes }
    }

    /// Whether any may be fetched.
    pub(super) fn are_allowed(&self) -> bool {
        !self.prefixes.is_empty()
    }

    /// The content of `package://PACKAGE/PATH`; a sentence when it is not sent.
    pub(super) fn read(&self, uri: &str) -> Result<Vec<u8>, String> {
        if !self.are_allowed() {
            return Err(
                "files of packages are off here; --foxglove-assets lets viewers fetch them".to_owned(),
            );
        }
        let refused =
            |reason: &str| format!("{reason}: expected package://PACKAGE/PATH of a mesh or an image");
        let path = uri
            .strip_prefix(SCHEME)
            .ok_or_else(|| refused("only files of packages are sent"))?;
        let path = Path::new(path);
        let is_plain = path.components().all(|part| matches!(part, Component::Normal(_)));
        // A name with "//" or "/." is written in another way than it is read.
        let is_same = path.components().collect::<PathBuf>().as_os_str() == path.as_os_str();
        if !is_plain || !is_same || path.components().count() < 2 {
            return Err(refused("this is not a path in a package"));
        }
        let ending = path.extension().and_then(OsStr::to_str).unwrap_or_default();
        if !EXTENSIONS.iter().any(|known| known.eq_ignore_ascii_case(ending)) {
            return Err(refused("files of this kind are not sent"));
        }
        let found = self
            .prefixes
            .iter()
            .map(|prefix| prefix.join("share").join(path))
            .find(|path| fs::is_file(path));
        let found = found.ok_or_else(|| "no package that is installed here has this file".to_owned())?;
        // Where it is on this computer is not for viewers.
        fs::read(&found, ASSET_BYTES_MAX).map_err(|error| {
            tracing::debug!("a viewer does not get a file: {error}");
            format!(
                "it cannot be read, or is larger than {} MiB",
                ASSET_BYTES_MAX >> 20
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn viewers_get_meshes_of_packages_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let package = folder.path().join("share/arm");
        std::fs::create_dir_all(package.join("meshes")).unwrap();
        std::fs::write(package.join("meshes/hand.DAE"), "mesh").unwrap();
        std::fs::write(package.join("secret.yaml"), "secret").unwrap();
        std::fs::write(folder.path().join("share/loose.png"), "x").unwrap();
        std::fs::write(folder.path().join("above.png"), "x").unwrap();
        let assets = Assets::new(vec![folder.path().join("nowhere"), folder.path().to_owned()]);
        assert_eq!(assets.read("package://arm/meshes/hand.DAE").unwrap(), b"mesh");
        for uri in [
            "package://arm/secret.yaml",
            "package://arm/../../above.png",
            "package://arm/../loose.png",
            "package:///etc/x.png",
            "package://loose.png",
            "package://arm//meshes/hand.DAE",
            "package://arm/./meshes/hand.DAE",
            "package://arm/meshes/none.dae",
            "package://arm/meshes",
            "file:///etc/passwd",
            "",
        ] {
            let refused = assets.read(uri).unwrap_err();
            assert!(!refused.contains(&*folder.path().to_string_lossy()), "{refused}");
        }
        assert!(Assets::default().read("package://arm/meshes/hand.DAE").is_err());
    }
}
