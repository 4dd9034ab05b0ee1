// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <shardkit/backend/nccl/api.hpp>
#include <shardkit/backend/nccl/version.hpp>

namespace shardkit::nccl {

/// Says what NCCL is told of the memory in which containers are.
enum class Registration : std::uint8_t {
    none,
    /// Takes chunks from ncclMemAlloc and registers them with every communicator, so that NCCL may move data without
    /// copies of its own. NCCL may then add in another order. Needs NCCL 2.19.
    buffers,
    /// Makes chunks symmetric windows of every communicator, for NCCL's kernels that read peers' memory at the same
    /// offset. Making a container is then collective: all ranks make the same ones in the same order, as they do for
    /// its verbs anyway. NCCL may add in another order. Needs NCCL 2.27.
    windows,
};

/// States the first NCCL with ncclMemAlloc and ncclCommRegister.
inline constexpr int registration_version = 21901;
/// States the first NCCL with ncclCommWindowRegister and ncclCommShrink.
inline constexpr int windows_version = 22703;

namespace detail {

/// Refuses a registration that the loaded NCCL is too old for.
/// @throws CommError, naming both versions, when NCCL is too old for it
inline void require_registration(Registration registration, SourceLocation where) {
    if (registration == Registration::buffers) { require_version(registration_version, "registered buffers", where); }
    if (registration == Registration::windows) { require_version(windows_version, "registered windows", where); }
}

}  // namespace detail

}  // namespace shardkit::nccl
