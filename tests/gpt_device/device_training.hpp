// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/mesh/expert_mesh.hpp>

#include "../../examples/train_gpt/device/kernels.hpp"
#include "../../examples/train_gpt/device/train.hpp"
#include "../gpt/trainings.hpp"
#include "../unit/backend/nccl/given_kernels.hpp"
#include "../unit/backend/nccl/paced_ranks.hpp"

/// The GPT on ranks that are threads, each with a GPU of the stand-in.
namespace device_training {

using namespace train_gpt;
using paced_ranks::Pace;
using paced_ranks::Paces;

enum class Steps : std::uint8_t { plain, captured };

inline constexpr std::size_t workspace_bytes = 4096;

inline PlanSummary planned(Options options, const sk::nccl::Options& of_world = gpu_ranks::patient()) {
    options.engine = EngineKind::nccl;
    return make_plan(options, sk::nccl::traits_of(of_world, options.mesh.world()), workspace_bytes);
}

inline auto mesh_of(const Options& options) {
    return sk::ExpertMesh(sk::DeviceMesh(options.mesh.dp, options.mesh.tp, options.mesh.cp), options.ep);
}

/// options.steps steps on one rank, as a program for GPUs makes them; what the last one communicates is what is
/// planned.
template <class T, class Report>
Results train_on(sk::Rank& rank, const Options& options, Steps how, const Report& report, const Start& start = {}) {
    Options each = options;
    each.every = 1;
    each.graph = how == Steps::captured;
    Job job{each, test::corpus()};
    job.start = start;
    job.chosen = planned(options).chosen;
    job.after_step = [&](const StepReport& of) { report(of.step, of.loss); };
    Results results(options.steps - start.first_step);
    train_on_device<T>(rank, job, workspace_bytes, &results);
    if (options.steps > start.first_step) {
        test::check_collectives(each, planned(each).collectives, results.collectives);
    }
    return results;
}
/// The same on a World.
template <class T, class Report>
Results train_in(sk::nccl::World& world, const Options& options, Steps how, const Report& report) {
    const auto mesh = mesh_of(options);
    sk::MeshRank<std::remove_const_t<decltype(mesh)>> rank(mesh, gpu_ranks::Comm(world),
                                                           rank_options(planned(options).chosen), world.streams());
    return train_on<T>(rank, options, how, report);
}

/// What a file of examples/train_gpt/device lists for models of T, and groups with AdamW.
template <class T>
constexpr auto listed() {
    using namespace sk::nccl::detail;
    using Of = PassLists<T, KernelList, EachPer>;
    return typename Of::OfLibrary{} + typename Of::Elements{} + typename Of::Rows{} + typename Of::OfColumns{} +
           typename Of::OfExperts{} + training_kernels<sk::DefaultPrecision<T>, sk::rules::AdamWRule>();
}
/// Checks that they list all that devices were given; fp64 is of tests alone.
template <class T>
void check_lists() {
    using namespace sk::nccl::detail;
    using Others = OtherLists<KernelList, EachPer>;
    CHECK(host_functions::given_beside(listed<T>() + Others::OfLibrary{} + Others::Elements{}) == "");
}

/// On all ranks of the options' mesh, whose losses are the same.
template <class T>
std::vector<double> train(const Options& options, Steps how = Steps::plain,
                          Paces paces = {Pace::lazy, Pace::eager, Pace::lazy}) {
    const auto mesh = mesh_of(options);
    std::vector<std::vector<double>> losses(mesh.grid().size());
    host_functions::Given::all().take();
    CHECK(paced_ranks::run(
              mesh, paces, rank_options(planned(options).chosen), [&](auto& rank, const auto& /*streams*/) {
                  losses[rank.rank()] = train_on<T>(rank, options, how, [](std::size_t, double) {}).losses;
              }) == "");
    check_lists<T>();
    for (const auto& of_rank : losses) { CHECK(of_rank == losses.front()); }
    return losses.front();
}

struct Memory {
    std::size_t planned, taken;
};
/// Of a rank's device: planned, and what the stand-in saw of it at most, which is what the run says.
template <class T>
Memory memory_of(const Options& options, sk::nccl::Options of_world = gpu_ranks::patient()) {
    gpu_ranks::restart();
    of_world.arena_chunk_bytes = 1;  // a chunk of its own for every buffer
    const sk::nccl::UniqueId id = sk::nccl::UniqueId::create();
    std::vector<std::size_t> taken(options.mesh.world());
    const auto outcomes = gpu_ranks::each_in_a_thread(options.mesh.world(), [&](std::size_t number) {
        sk::nccl::World world(id, options.mesh.world(), number, of_world);
        const Results results = train_in<T>(world, options, Steps::plain, [](std::size_t, double) {});
        taken[number] = standin::peak_device_bytes(static_cast<int>(number));
        CHECK(results.peak_bytes_per_rank == taken[number]);
        world.finish();
    });
    CHECK(gpu_ranks::first_error(outcomes) == "");
    for (const std::size_t each : taken) { CHECK(each == taken[0]); }
    return {planned(options, of_world).bytes_per_rank(), taken[0]};
}

inline double worst(const std::vector<double>& a, const std::vector<double>& b) {
    REQUIRE(a.size() == b.size());
    double most = 0;
    for (std::size_t i = 0; i < a.size(); ++i) { most = larger(most, std::abs(a[i] - b[i])); }
    return most;
}

}  // namespace device_training
