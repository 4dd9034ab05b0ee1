// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include <shardkit/backend/nccl/api.hpp>
#include <shardkit/backend/nccl/check.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/detail/concat.hpp>

namespace shardkit::nccl {

/// Returns the version of the NCCL library that is loaded, coded as NCCL_VERSION_CODE; the header's may be another.
/// @throws CommError
inline int library_version(SourceLocation where = SourceLocation::current()) {
    int version = 0;
    detail::check(ncclGetVersion(&version), "ncclGetVersion", "version", where);
    return version;
}

/// Writes a version as text, "2.28.9" for 22809.
inline std::string version_text(int version) {
    const int per_major = version < 10000 ? 1000 : 10000;  // the coding changed with 2.9
    return shardkit::detail::concat(version / per_major, ".", version % per_major / 100, ".", version % 100);
}

namespace detail {

/// Refuses a NCCL library, or a header of it, that is older than `minimum`.
/// @throws CommError, naming both versions, when the library or its header is older than `minimum`, which `what`
/// needs
inline void require_version(int minimum, std::string_view what, SourceLocation where = SourceLocation::current()) {
    const auto refuse = [&](std::string_view built, int version, std::string_view loaded) {
        throw CommError("nccl", what,
                        shardkit::detail::concat(built, "NCCL ", version_text(version), loaded, ", expected ",
                                                 version_text(minimum), " or later"),
                        where);
    };
    if (NCCL_VERSION_CODE < minimum) { refuse("built with ", NCCL_VERSION_CODE, ""); }
    if (const int loaded = library_version(where); loaded < minimum) { refuse("", loaded, " is loaded"); }
}

}  // namespace detail

}  // namespace shardkit::nccl
