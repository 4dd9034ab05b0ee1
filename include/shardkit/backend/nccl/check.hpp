// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include <shardkit/backend/nccl/api.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/detail/concat.hpp>

namespace shardkit::nccl::detail {

/// Says what an NCCL call returned, as "ncclAllReduce returned 2 (unhandled system error): connection refused":
/// NCCL's text for the code, and what it says about its last error in this process, which may be an earlier one.
inline std::string describe(ncclResult_t code, std::string_view call, ncclComm_t comm = nullptr) {
    const char* const text = ncclGetErrorString(code);
    const char* const last = ncclGetLastError(comm);
    std::string result = shardkit::detail::concat(call, " returned ", static_cast<int>(code), " (",
                                                  text != nullptr ? text : "no text", ")");
    if (last != nullptr && *last != '\0') { result += shardkit::detail::concat(": ", last); }
    return result;
}

/// Throws unless `code` is ncclSuccess.
/// @throws CommError with NCCL's text, what was being done, the NCCL call and the caller's line
inline void check(ncclResult_t code, std::string_view call, std::string_view doing, SourceLocation where,
                  ncclComm_t comm = nullptr) {
    if (code != ncclSuccess) { throw CommError("nccl", doing, describe(code, call, comm), where); }
}

}  // namespace shardkit::nccl::detail
