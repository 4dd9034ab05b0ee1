// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#ifdef SHARDKIT_COMPILED
#include <shardkit/backend/host/any_kernels.hpp>
#include <shardkit/verbs/communicator.hpp>
#endif

namespace shardkit::detail {

/// Returns the number of workers that read one row together. Kernels may define it: adjacent workers then read
/// adjacent columns. On hosts it is one, as a row is best read from begin to end.
template <class Kernels, class Stream>
constexpr std::size_t row_workers([[maybe_unused]] const Stream& stream) noexcept {
    if constexpr (requires { Kernels::row_workers_on(stream); }) {
        return Kernels::row_workers_on(stream);
    } else if constexpr (requires { Kernels::row_workers; }) {
        return Kernels::row_workers;
    } else {
        return 1;
    }
}

}  // namespace shardkit::detail
