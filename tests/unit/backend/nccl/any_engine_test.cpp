// SPDX-License-Identifier: Apache-2.0
// One function, compiled once for every engine, on threads and on NCCL: windows, gradients, reductions, norms and
// verbs have the same values on both.
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/average/moving_average.hpp>
#include <shardkit/backend/nccl/kernels_of.hpp>
#include <shardkit/backend/nccl/native.hpp>
#include <shardkit/backend/nccl/run.hpp>
#include <shardkit/backend/threads/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/optim/clip.hpp>
#include <shardkit/optim/norm.hpp>
#include <shardkit/optim/sgd.hpp>
#include <shardkit/param/tensor_list.hpp>
#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/policy/named_policy.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/rank/all_reduce_value.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/sharded/sharded.hpp>
#include <shardkit/step/accumulation.hpp>
#include <shardkit/step/loss_scale.hpp>
#include <shardkit/step/model.hpp>
#include <shardkit/step/reduce.hpp>
#include <shardkit/verbs/all_gather.hpp>

#include "given_kernels.hpp"
#include "gpu_ranks.hpp"
#include "largest_difference.hpp"
#include "trainer_layer.hpp"
#include "unit/thrown_message.hpp"

namespace any_engine_test {

namespace {

namespace sk = shardkit;
using trainer_layer::Bias;
using trainer_layer::bias_size;
using trainer_layer::Weight;
using trainer_layer::weight_size;

constexpr std::size_t ranks = 4;
using Mesh = sk::DeviceMesh<ranks>;
/// Of whichever engine.
using Rank = sk::MeshRank<Mesh>;
template <class T>
using Layer = sk::Sharded<sk::Params<Weight<T>, Bias<T>>, sk::DynamicPolicy>;

/// How a trainer's own kernels run.
template <class Work>
void submit(const sk::Stream& stream, const Work& work) {
    if (!stream.on_device()) { return stream.submit(work); }
    host_functions::LaunchedStream(sk::gpu::TimelineRef(stream)).submit(work);
}

/// Gradients of two microbatches, what becomes of them, and what verbs make of numbers of the ranks.
template <class T>
std::vector<double> results_of(Rank& rank, const sk::DynamicPolicy& policy) {
    const sk::Stream stream = rank.compute_stream();
    Layer<T> layer{rank, "layer.0", {}, {policy}};
    layer.initialize(trainer_layer::first_value);
    const auto activations = rank.buffer<T>(weight_size);
    sk::Model model{layer};
    sk::SGD optimizer{model, {.learning_rate = 0.25}};
    sk::LossScale loss_scale{rank, {.initial = 1}};
    sk::Accumulation accumulation{model, 2};
    for (std::size_t m = 0; m < 2; ++m) {
        auto gradients = accumulation.gradients(layer);
        const auto window = layer.unshard();
        const float slope = trainer_layer::slope(rank.rank(), m, 0);
        submit(stream, trainer_layer::Forward<T>{{window[Weight<T>{}].data(), weight_size}, activations.data()});
        submit(stream, trainer_layer::Backward<T>{{window[Weight<T>{}].data(), weight_size},
                                                  activations.data(),
                                                  gradients[Weight<T>{}].data(),
                                                  slope,
                                                  nullptr,
                                                  trainer_layer::never});
        submit(stream, trainer_layer::Backward<T>{{window[Bias<T>{}].data(), bias_size},
                                                  activations.data(),
                                                  gradients[Bias<T>{}].data(),
                                                  slope,
                                                  nullptr,
                                                  trainer_layer::never});
        accumulation.add(std::move(gradients));
    }
    auto reduced = sk::reduce(std::move(accumulation), sk::mean, loss_scale);
    const auto norm = sk::global_norm(reduced);
    std::vector<double> results{norm.value()};
    std::vector<double> values(weight_size);
    reduced.read_full(layer, Weight<T>{}, std::span(values));
    results.insert(results.end(), values.begin(), values.end());
    layer.read_full(Weight<T>{}, std::span(values));
    results.insert(results.end(), values.begin(), values.end());

    optimizer.step(std::move(reduced), sk::clip(norm, 1));
    layer.read_full(Weight<T>{}, std::span(values));
    results.insert(results.end(), values.begin(), values.end());

    // Verbs.
    const auto own = rank.buffer<float>(3);
    const auto all = rank.buffer<float>(3 * ranks);
    const auto local = rank.local_buffer<float>(3 + rank.rank());
    sk::host::AnyKernels::fill(stream, own.span(), static_cast<float>(rank.rank() + 1));
    sk::host::AnyKernels::fill(stream, local.span(), 0.5F);
    sk::host::AnyKernels::accumulate(stream, std::span<const float>(local.span().first(3)), own.span());
    sk::all_gather(rank.world(), std::span<const float>(own.span()), all.span(), stream);
    for (std::size_t i = 0; i < all.size(); ++i) { results.push_back(rank.read(all.data() + i)); }
    results.push_back(sk::all_reduce_value(rank, static_cast<double>(rank.rank()), sk::ReduceOp::max));
    return results;
}

/// Of every rank; on NCCL with its streams at some pace.
template <class T>
std::vector<std::vector<double>> on_threads(const sk::DynamicPolicy& policy) {
    std::vector<std::vector<double>> results(ranks);
    sk::threads::run(Mesh{}, [&](Rank& rank) { results[rank.rank()] = results_of<T>(rank, policy); });
    return results;
}
template <class T>
std::vector<std::vector<double>> on_nccl(const sk::DynamicPolicy& policy, standin::Pace pace, std::string& error) {
    std::vector<std::vector<double>> results(ranks);
    gpu_ranks::restart(pace);
    const sk::nccl::UniqueId id = sk::nccl::UniqueId::create();
    error = gpu_ranks::first_error(gpu_ranks::each_in_a_thread(ranks, [&](std::size_t r) {
        sk::nccl::World world(id, ranks, r, gpu_ranks::patient());
        sk::nccl::run(Mesh{}, world, [&](Rank& rank) { results[r] = results_of<T>(rank, policy); });
    }));
    for (const std::string& violation : standin::order_violations()) { error += violation; }
    for (const std::string& free : standin::frees_in_use()) { error += free; }
    return results;
}

template <class T>
void check(const char* policy_name, double bound) {
    const sk::DynamicPolicy policy = sk::named_policy(policy_name);
    CAPTURE(policy_name);
    const auto expected = on_threads<T>(policy);
    for (const standin::Pace pace : gpu_ranks::paces) {
        std::string error;
        const auto given = on_nccl<T>(policy, pace, error);
        CHECK(error == "");
        for (std::size_t r = 0; r < ranks; ++r) {
            REQUIRE(given[r].size() == expected[r].size());
            CHECK(largest_difference(given[r], expected[r]) <= bound);
        }
    }
}

}  // namespace

TEST_CASE("NCCL behind the engine: a training gives no kernel that the list of its precision and rule has not") {
    const auto others = []<class T>(T /*element*/) {
        std::string error;
        host_functions::Given::all().take();
        for (const char* policy : {"no_shard", "full_shard"}) {
            on_nccl<T>(sk::named_policy(policy), standin::Pace::eager, error);
            CHECK(error == "");
        }
        // What the trainer itself gives beside.
        constexpr sk::nccl::detail::KernelList<sk::engine::Fill<float>, sk::engine::Accumulate<float, float>> own;
        return host_functions::given_beside(
            own + sk::nccl::detail::training_kernels<sk::DefaultPrecision<T>, sk::rules::SgdRule>());
    };
    CHECK(others(float{}) == "");
    CHECK(others(sk::bf16{}) == "");
}

TEST_CASE("NCCL behind the engine: an average gives no kernel that the lists of its precision have not") {
    const auto others = []<class T>(T /*element*/) {
        using Average = sk::Precision<float, T>;
        using Of = sk::DefaultPrecision<T>;
        constexpr auto listed = sk::nccl::detail::average_kernels<Average, Of>();
        decltype(listed)::template In<sk::gpu::KernelLaunches>::calls();
        host_functions::Given::all().take();
        gpu_ranks::restart();
        const sk::nccl::UniqueId id = sk::nccl::UniqueId::create();
        CHECK(gpu_ranks::first_error(gpu_ranks::each_in_a_thread(1, [&](std::size_t) {
                  sk::nccl::World world(id, 1, 0, gpu_ranks::patient());
                  sk::nccl::run(sk::DeviceMesh<1>{}, world, [](auto& rank) {
                      sk::Sharded<sk::TensorList<T>, sk::FullShard> trained(rank, "trained", {{"weight", {8}}});
                      sk::Sharded<sk::TensorList<float>, sk::FullShard, Average> average(
                          rank, "average", {{"weight", {8}, {.frozen = true}}});
                      sk::Model model{trained};
                      sk::Model averages{average};
                      sk::MovingAverage{averages, model}.update(0.5);
                  });
              })) == "");
        return host_functions::given_beside(sk::nccl::detail::group_kernels<Of>() +
                                            sk::nccl::detail::group_kernels<Average>() + listed);
    };
    CHECK(others(float{}) == "");
    CHECK(others(sk::bf16{}) == "");
}

TEST_CASE("NCCL behind the engine: a training has the values of threads") {
    for (const char* policy : {"no_shard", "shard_grad_op", "full_shard", "hybrid_shard:2"}) {
        check<float>(policy, 1e-4);
        check<sk::bf16>(policy, 2e-2);
    }
}

TEST_CASE("NCCL behind the engine: what is another engine's is refused") {
    gpu_ranks::restart();
    const sk::nccl::UniqueId id = sk::nccl::UniqueId::create();
    const std::string error = gpu_ranks::first_error(gpu_ranks::each_in_a_thread(1, [&](std::size_t) {
        sk::nccl::World world(id, 1, 0, gpu_ranks::patient());
        sk::nccl::run(sk::DeviceMesh<1>{}, world, [&](auto& rank) {
            CHECK(sk::nccl::stream(rank) == world.streams().compute.native());
            CHECK(sk::nccl::native(rank.world()) != nullptr);
            Layer<float> layer{rank, "layer.0", {}, {sk::named_policy("full_shard")}};
            sk::Model model{layer};
            const auto refused = [&](const auto& f) { return thrown_message<sk::UsageError>(f); };
            CHECK(has(refused([&] {
                          const sk::MeshRank<sk::DeviceMesh<1>> other{{}, rank.world()};
                      }),
                      "the engine nccl with streams of the host; expected those of that engine"));
            // No list of launches has this precision.
            using Half = sk::Reduce16<sk::bf16>;
            sk::Sharded<Weight<sk::bf16>, sk::FullShard, Half> half{rank, "half"};
            sk::Model halves{half};
            CHECK(
                has(refused([&] { const sk::SGD optimizer{halves}; }),
                    "'half': no file of this program launches the updates of its fp32 elements (bf16 gathered, bf16 "
                    "reduced) with the optimizer's rule on a device: expected a shardkit::nccl::KernelsFor"));
            const std::vector<float> of_host(4);
            sk::Sharded<sk::TensorList<double>, sk::FullShard> doubles{rank, "double", {{"weight", {8}}}};
            sk::Sharded<sk::TensorList<double>, sk::FullShard> averages{
                rank, "average", {{"weight", {8}, {.frozen = true}}}};
            sk::Model of_doubles{doubles}, averaged{averages};
            CHECK(has(refused([&] {
                          const sk::MovingAverage average{averaged, of_doubles};
                      }),
                      "MovingAverage: no file of this program launches the average of 'double' in 'average', of fp64 "
                      "in fp64 (fp64 gathered), on a device: expected a shardkit::nccl::AverageKernelsFor of both "
                      "groups' Precisions"));
            const auto sum = rank.template buffer<float>(4);
            CHECK(has(thrown_message<std::invalid_argument>(
                          [&] { sk::all_reduce(rank.world(), sk::ReduceOp::sum, std::span(of_host), sum.span()); }),
                      "all_reduce: input: host memory given, device memory of GPU"));
        });
    }));
    CHECK(error == "");
    sk::threads::run(sk::DeviceMesh<1>{}, [](auto& rank) {
        CHECK(has(thrown_message<sk::UsageError>([&] { static_cast<void>(sk::nccl::stream(rank)); }),
                  "expected one of a device"));
        CHECK(has(thrown_message<sk::UsageError>([&] { static_cast<void>(sk::nccl::native(rank.world())); }),
                  "engine threads, expected one of the engine nccl"));
    });
}

}  // namespace any_engine_test
