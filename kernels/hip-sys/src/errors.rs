//! Names and meanings of HIP's status codes, so that a message needs no library.

/// The name of a status as HIP's header spells it.
#[must_use]
pub fn error_name(code: i32) -> &'static str {
    entry(code).map_or("hipErrorUnlisted", |e| e.1)
}

/// What a status means for the user, where there is more to say than its name.
#[must_use]
pub fn error_hint(code: i32) -> Option<&'static str> {
    entry(code).and_then(|e| (!e.2.is_empty()).then_some(e.2))
}

/// Whether the process has lost the device: every later call fails too.
#[must_use]
pub fn is_sticky(code: i32) -> bool {
    (700..800).contains(&code) || matches!(code, 214 | 999)
}

fn entry(code: i32) -> Option<&'static (i32, &'static str, &'static str)> {
    TABLE
        .binary_search_by_key(&code, |e| e.0)
        .ok()
        .and_then(|i| TABLE.get(i))
}

// Sorted by code.
static TABLE: &[(i32, &str, &str)] = &[
    (0, "hipSuccess", ""),
    (1, "hipErrorInvalidValue", ""),
    (
        2,
        "hipErrorOutOfMemory",
        "device memory is exhausted: on an APU the limit is the TTM page limit (/sys/module/ttm/parameters/pages_limit)",
    ),
    (3, "hipErrorNotInitialized", ""),
    (4, "hipErrorDeinitialized", ""),
    (
        9,
        "hipErrorInvalidConfiguration",
        "grid or block outside the device's limits",
    ),
    (17, "hipErrorInvalidDevicePointer", ""),
    (21, "hipErrorInvalidMemcpyDirection", ""),
    (
        35,
        "hipErrorInsufficientDriver",
        "the kernel driver is older than this runtime needs",
    ),
    (98, "hipErrorInvalidDeviceFunction", ""),
    (100, "hipErrorNoDevice", "no GPU is visible to this process"),
    (
        101,
        "hipErrorInvalidDevice",
        "not a device number, or no GPU is visible to this process",
    ),
    (
        200,
        "hipErrorInvalidImage",
        "the code object could not be read",
    ),
    (201, "hipErrorInvalidContext", ""),
    (
        209,
        "hipErrorNoBinaryForGpu",
        "the code object was built for another gfx target, or this ROCm does not know the GPU",
    ),
    (
        214,
        "hipErrorECCNotCorrectable",
        "uncorrectable memory error",
    ),
    (217, "hipErrorPeerAccessUnsupported", ""),
    (301, "hipErrorFileNotFound", ""),
    (302, "hipErrorSharedObjectSymbolNotFound", ""),
    (303, "hipErrorSharedObjectInitFailed", ""),
    (304, "hipErrorOperatingSystem", ""),
    (400, "hipErrorInvalidHandle", ""),
    (
        500,
        "hipErrorNotFound",
        "no kernel of that name in the code object",
    ),
    (600, "hipErrorNotReady", ""),
    (
        700,
        "hipErrorIllegalAddress",
        "a kernel touched memory it must not; the device is lost to this process",
    ),
    (701, "hipErrorLaunchOutOfResources", ""),
    (
        702,
        "hipErrorLaunchTimeOut",
        "a kernel ran past the watchdog; the device is lost to this process",
    ),
    (704, "hipErrorPeerAccessAlreadyEnabled", ""),
    (710, "hipErrorAssert", ""),
    (712, "hipErrorHostMemoryAlreadyRegistered", ""),
    (
        719,
        "hipErrorLaunchFailure",
        "a kernel died; the device is lost to this process",
    ),
    (
        801,
        "hipErrorNotSupported",
        "this device or ROCm version cannot do that",
    ),
    (900, "hipErrorStreamCaptureUnsupported", ""),
    (901, "hipErrorStreamCaptureInvalidated", ""),
    (999, "hipErrorUnknown", ""),
    (1051, "hipErrorRuntimeMemory", ""),
    (1052, "hipErrorRuntimeOther", ""),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_is_sorted_and_answers() {
        assert!(TABLE.windows(2).all(|w| w[0].0 < w[1].0));
        assert_eq!(error_name(209), "hipErrorNoBinaryForGpu");
        assert!(error_hint(209).is_some_and(|h| h.contains("gfx")));
        assert_eq!(error_name(-5), "hipErrorUnlisted");
        assert!(is_sticky(719) && !is_sticky(2));
    }
}
