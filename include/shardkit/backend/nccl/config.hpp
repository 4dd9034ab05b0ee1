// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include <shardkit/backend/nccl/api.hpp>
#include <shardkit/backend/nccl/options.hpp>
#include <shardkit/backend/nccl/registration.hpp>
#include <shardkit/backend/nccl/version.hpp>
#include <shardkit/core/error.hpp>

namespace shardkit::nccl::detail {

/// Refuses options that the loaded NCCL is too old for, and such that contradict each other.
/// @throws CommError when NCCL is older than `making` needs with these options; std::invalid_argument when they
/// contradict each other
inline void require_possible(const Options& options, std::string_view making, SourceLocation where) {
    require_version(minimum_version, making, where);
    require_registration(options.registration, where);
    if (options.survivable) { require_version(windows_version, "a survivable World", where); }
    if (options.survivable && options.split_share) {
        throw_invalid_argument(where,
                               "nccl::Options: split_share with survivable, but communicators that share "
                               "cannot be aborted alone");
    }
}

/// Returns what NCCL is told of each communicator that a World makes: it does not block, also where it is made out of
/// one that does, so that the wait for peers can end. For the rest NCCL has its way, unless the options say
/// otherwise.
inline ncclConfig_t config_of(const Options& options) {
    constexpr int most_ctas =
        64;  // MAXCHANNELS in NCCL's device.h; parseCommConfig refuses a minimum without a maximum
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    if (options.min_ctas > 0) { config.minCTAs = options.min_ctas; }
    if (options.min_ctas > 0 || options.max_ctas > 0) {
        config.maxCTAs = options.max_ctas > 0 ? options.max_ctas : most_ctas;
    }
    config.splitShare = options.split_share ? 1 : 0;
#if NCCL_VERSION_CODE >= 22703
    if (options.name != nullptr) { config.commName = options.name; }
#endif
    return config;
}

}  // namespace shardkit::nccl::detail
