// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include <shardkit/backend/mpi/api.hpp>

namespace shardkit::mpi {

/// Which threads of a process may call MPI, as in MPI_Init_thread; each level includes the ones before it.
enum class ThreadLevel : std::uint8_t { single, funneled, serialized, multiple };

/// The level as MPI calls it.
constexpr std::string_view name(ThreadLevel level) noexcept {
    constexpr std::string_view names[] = {"MPI_THREAD_SINGLE", "MPI_THREAD_FUNNELED", "MPI_THREAD_SERIALIZED",
                                          "MPI_THREAD_MULTIPLE"};
    return names[static_cast<std::size_t>(level)];
}

namespace detail {

/// The level as MPI's constant.
inline int to_mpi(ThreadLevel level) noexcept {
    const int levels[] = {MPI_THREAD_SINGLE, MPI_THREAD_FUNNELED, MPI_THREAD_SERIALIZED, MPI_THREAD_MULTIPLE};
    return levels[static_cast<std::size_t>(level)];
}

/// The level that MPI's constant stands for.
inline ThreadLevel from_mpi(int level) noexcept {
    return level == MPI_THREAD_MULTIPLE     ? ThreadLevel::multiple
           : level == MPI_THREAD_SERIALIZED ? ThreadLevel::serialized
           : level == MPI_THREAD_FUNNELED   ? ThreadLevel::funneled
                                            : ThreadLevel::single;
}

}  // namespace detail

}  // namespace shardkit::mpi
