// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <nccl.h>

#include <shardkit/comm/reduce_op.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/detail/concat.hpp>

namespace shardkit::nccl {

/// The oldest NCCL that the engine works with: the first with ncclCommSplit.
inline constexpr int minimum_version = 21800;

static_assert(NCCL_VERSION_CODE >= minimum_version, "shardkit::nccl needs the header of NCCL 2.18 or later");

}  // namespace shardkit::nccl

// What is newer than minimum_version may be missing in the library that a program finds when it starts, whatever it
// was linked to. Weak symbols let it load nevertheless, and require_version comes before each call.
#if NCCL_VERSION_CODE >= 21901
extern "C" [[gnu::weak]] decltype(ncclMemAlloc) ncclMemAlloc;
extern "C" [[gnu::weak]] decltype(ncclMemFree) ncclMemFree;
extern "C" [[gnu::weak]] decltype(ncclCommRegister) ncclCommRegister;
extern "C" [[gnu::weak]] decltype(ncclCommDeregister) ncclCommDeregister;
#endif
#if NCCL_VERSION_CODE >= 22703
extern "C" [[gnu::weak]] decltype(ncclCommWindowRegister) ncclCommWindowRegister;
extern "C" [[gnu::weak]] decltype(ncclCommWindowDeregister) ncclCommWindowDeregister;
extern "C" [[gnu::weak]] decltype(ncclCommShrink) ncclCommShrink;
#endif
#if NCCL_VERSION_CODE >= 22807
extern "C" [[gnu::weak]] decltype(ncclCommRevoke) ncclCommRevoke;
#endif
#if NCCL_VERSION_CODE >= 22907
extern "C" [[gnu::weak]] decltype(ncclCommMemStats) ncclCommMemStats;
#endif
#if NCCL_VERSION_CODE >= 23102
extern "C" [[gnu::weak]] decltype(ncclAllGatherConfig) ncclAllGatherConfig;
extern "C" [[gnu::weak]] decltype(ncclReduceScatterConfig) ncclReduceScatterConfig;
extern "C" [[gnu::weak]] decltype(ncclAllReduceConfig) ncclAllReduceConfig;
extern "C" [[gnu::weak]] decltype(ncclBroadcastConfig) ncclBroadcastConfig;
#endif

namespace shardkit::nccl::detail {

/// Returns a text like "ncclAllReduce returned 2 (unhandled system error): connection refused": NCCL's text of the
/// code, and its text of its last error in this process, which may be an earlier one.
inline std::string describe(ncclResult_t code, std::string_view call, ncclComm_t comm = nullptr) {
    const char* const text = ncclGetErrorString(code);
    const char* const last = ncclGetLastError(comm);
    std::string result = shardkit::detail::concat(call, " returned ", static_cast<int>(code), " (",
                                                  text != nullptr ? text : "no text", ")");
    if (last != nullptr && *last != '\0') { shardkit::detail::append(result, ": ", last); }
    return result;
}

/// Checks a result of NCCL.
/// @throws CommError with NCCL's text, what was being done, the NCCL call and the caller's line, unless `code` is
///         ncclSuccess
inline void check(ncclResult_t code, std::string_view call, std::string_view doing, SourceLocation where,
                  ncclComm_t comm = nullptr) {
    if (code != ncclSuccess) { throw CommError("nccl", doing, describe(code, call, comm), where); }
}

}  // namespace shardkit::nccl::detail

namespace shardkit::nccl {

/// Returns the version of the loaded NCCL library, coded as NCCL_VERSION_CODE. It may differ from the header's.
/// @throws CommError
inline int library_version(SourceLocation where = SourceLocation::current()) {
    int version = 0;
    detail::check(ncclGetVersion(&version), "ncclGetVersion", "version", where);
    return version;
}

/// Returns the version as text: "2.28.9" for 22809.
inline std::string version_text(int version) {
    const int per_major = version < 10000 ? 1000 : 10000;  // the coding changed with 2.9
    return shardkit::detail::concat(version / per_major, ".", version % per_major / 100, ".", version % 100);
}

namespace detail {

/// Asks NCCL for the memory of the GPU that it has allocated for a communicator, in bytes. Returns ncclInvalidUsage
/// where it does not count that: before 2.29.7, or if the environment has switched its memory manager off.
inline ncclResult_t memory_of([[maybe_unused]] ncclComm_t comm, [[maybe_unused]] std::uint64_t& bytes) noexcept {
#if NCCL_VERSION_CODE >= 22907
    int version = 0;
    if (ncclGetVersion(&version) == ncclSuccess && version >= 22907) {
        return ncclCommMemStats(comm, ncclStatGpuMemTotal, &bytes);
    }
#endif
    return ncclInvalidUsage;
}

/// Checks that NCCL's library and header are not older than `minimum`.
/// @throws CommError that names both versions and `what`, which needs the newer one
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

/// Returns NCCL's type for elements of a type.
constexpr ncclDataType_t datatype(ElementType type) noexcept {
    constexpr ncclDataType_t types[] = {ncclFloat64, ncclFloat32, ncclBfloat16, ncclFloat16, ncclInt64,
                                        ncclInt32,   ncclUint64,  ncclUint32,   ncclUint8};
    return types[static_cast<std::size_t>(type)];
}

/// Returns NCCL's constant for the operation.
constexpr ncclRedOp_t native(ReduceOp op) noexcept {
    return shardkit::detail::adds(op) ? ncclSum : op == ReduceOp::max ? ncclMax : ncclMin;
}

}  // namespace detail

}  // namespace shardkit::nccl
