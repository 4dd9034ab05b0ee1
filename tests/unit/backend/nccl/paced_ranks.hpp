// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <iterator>
#include <span>
#include <string>

#include <shardkit/backend/nccl/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/rank/rank.hpp>

#include "gpu_ranks.hpp"
#include "test_size.hpp"

/// Ranks on the stand-in whose streams work at chosen paces.
namespace paced_ranks {

namespace sk = shardkit;

using standin::Pace;

/// When each of a rank's streams works: all are right, and what a missing wait breaks shows in one of them.
struct Paces {
    Pace compute;
    Pace communication;
    Pace reduction;
};
inline constexpr Paces all_paces[] = {{Pace::lazy, Pace::lazy, Pace::lazy},   {Pace::lazy, Pace::eager, Pace::lazy},
                                      {Pace::eager, Pace::lazy, Pace::eager}, {Pace::eager, Pace::eager, Pace::eager},
                                      {Pace::lazy, Pace::eager, Pace::eager}, {Pace::eager, Pace::lazy, Pace::lazy},
                                      {Pace::lazy, Pace::lazy, Pace::eager},  {Pace::eager, Pace::eager, Pace::lazy}};
/// Of every two streams each is once the late one.
inline constexpr Paces one_lazy[] = {{Pace::lazy, Pace::eager, Pace::eager},
                                     {Pace::eager, Pace::lazy, Pace::eager},
                                     {Pace::eager, Pace::eager, Pace::lazy}};
/// All of them; of slow builds the fewest in which a missing wait shows.
inline std::span<const Paces> some_paces() {
    return test_size::reduced() ? std::span<const Paces>(one_lazy) : std::span<const Paces>(all_paces);
}
/// For one of many policies: `all`; in slow builds one of those with one late stream, another one each time, so that
/// the policies together have all of them.
inline std::span<const Paces> paces_in_turn(std::span<const Paces> all = all_paces) {
    if (!test_size::reduced()) { return all; }
    static std::size_t turn = 0;
    return std::span(one_lazy).subspan(turn++ % std::size(one_lazy), 1);
}

/// f(rank, streams) on every rank of `mesh`. Empty when every rank ended well, and the stand-in saw nothing that
/// would break on a GPU.
template <class Mesh, class F>
std::string run(const Mesh& mesh, Paces paces, const sk::RankOptions& options, const F& f,
                const sk::nccl::Options& of_world = {}) {
    gpu_ranks::restart();
    if (of_world.sums == sk::nccl::Sums::by_nccl) { standin::set_nccl_version(sk::nccl::configured_calls_version); }
    std::string error = gpu_ranks::first_error(
        gpu_ranks::with_world(mesh.grid().size(), gpu_ranks::patient(of_world),
                              [&](const gpu_ranks::Comm& /*comm*/, sk::nccl::World& world) {
                                  const auto streams = world.streams();
                                  standin::set_pace(streams.compute.native(), paces.compute);
                                  standin::set_pace(streams.communication.native(), paces.communication);
                                  standin::set_pace(streams.reduction.native(), paces.reduction);
                                  auto rank = sk::nccl::make_rank(mesh, world, options);
                                  f(rank, streams);
                              }));
    for (const std::string& violation : standin::order_violations()) { error += violation; }
    for (const std::string& free : standin::frees_in_use()) { error += free; }
    for (const std::string& crowd : standin::crowded()) { error += crowd; }
    for (const std::string& uneven : standin::uneven_windows()) { error += uneven; }
    return error;
}

/// How a trainer's own kernels run on these ranks.
inline constexpr auto submit = [](const sk::Stream& stream, const auto& work) {
    host_functions::LaunchedStream(stream).submit(work);
};

}  // namespace paced_ranks
