// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <shardkit/backend/cuda/step_graph.hpp>
#ifdef SHARDKIT_COMPILED
#include <shardkit/nccl.hpp>
#include <shardkit/plan.hpp>
#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/policy/named_policy.hpp>
#include <shardkit/schedule.hpp>
#include <shardkit/shardkit.hpp>
#include <shardkit/verbs.hpp>
#else  // which compiles the core here: not more of it than is used
#include <shardkit/backend/nccl/native.hpp>
#include <shardkit/backend/nccl/run.hpp>
#include <shardkit/backend/nccl/world.hpp>
#include <shardkit/comm/all_reduce.hpp>
#include <shardkit/follow/follow.hpp>
#include <shardkit/follow/record.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/plan/plan_model.hpp>
#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/policy/named_policy.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/schedule/passes.hpp>
#include <shardkit/schedule/scheduled_plan.hpp>
#include <shardkit/sharded/sharded.hpp>
#include <shardkit/step/accumulation.hpp>
#include <shardkit/step/reduce.hpp>
#endif

#include "inputs.hpp"
#include "job.hpp"
#include "network.hpp"

/// The trainer after: a policy decides what each rank holds, and thereby what is communicated.
namespace cuda_trainer::after {

namespace sk = shardkit;

struct Table : sk::Param<"table", float, sk::dynamic, sk::dynamic> {};
struct Projection : sk::Param<"projection", float, sk::dynamic, sk::dynamic> {};
struct Expand : sk::Param<"expand", float, sk::dynamic, sk::dynamic> {};
struct ExpandBias : sk::Param<"expand_bias", float, sk::dynamic> {};
struct Contract : sk::Param<"contract", float, sk::dynamic, sk::dynamic> {};
struct ContractBias : sk::Param<"contract_bias", float, sk::dynamic> {};
struct Logits : sk::Param<"logits", float, sk::dynamic, sk::dynamic> {};
struct Bias : sk::Param<"bias", float, sk::dynamic> {};
using EmbeddingGroup = sk::Params<Table, Projection, Bias>;
using BlockGroup = sk::Params<Expand, ExpandBias, Contract, ContractBias>;
using HeadGroup = sk::Params<Logits, Bias>;

/// The device pointers in a window, or in a handle of gradients.
template <class T>
EmbeddingWeights<T> embedding(const auto& from) {
    return {from[Table{}].data(), from[Projection{}].data(), from[Bias{}].data()};
}
template <class T>
BlockWeights<T> block(const auto& from) {
    return {from[Expand{}].data(), from[ExpandBias{}].data(), from[Contract{}].data(), from[ContractBias{}].data()};
}
template <class T>
HeadWeights<T> head(const auto& from) {
    return {from[Logits{}].data(), from[Bias{}].data()};
}

/// The parameters, in one group for each part of the model.
struct ShardedModel {
    sk::Sharded<EmbeddingGroup, sk::DynamicPolicy> embedding;
    std::vector<sk::Sharded<BlockGroup, sk::DynamicPolicy>> blocks;
    sk::Sharded<HeadGroup, sk::DynamicPolicy> head;

    ShardedModel(sk::Context& rank, const Shape& s, const sk::DynamicPolicy& policy, sk::Offload offload)
        : embedding(rank, "embedding",
                    {sk::shape<Table>(Shape::vocabulary, s.embedding), sk::shape<Projection>(s.width, s.inputs()),
                     sk::shape<Bias>(s.width)},
                    {.policy = policy, .offload = offload}),
          head(rank, "head", {sk::shape<Logits>(Shape::vocabulary, s.width), sk::shape<Bias>(Shape::vocabulary)},
               {.policy = policy, .offload = offload}) {
        for (std::size_t l = 0; l < s.layers; ++l) {
            const sk::Shapes<BlockGroup> shapes{
                sk::shape<Expand>(s.hidden(), s.width), sk::shape<ExpandBias>(s.hidden()),
                sk::shape<Contract>(s.width, s.hidden()), sk::shape<ContractBias>(s.width)};
            blocks.push_back({rank, "blocks." + std::to_string(l), shapes, {.policy = policy, .offload = offload}});
        }
    }
};

/// When an exception leaves the scope: ends the communication that is under way, so that memory that it uses can be
/// freed and the peers learn of it. shardkit ends its own communicators, and leaves a borrowed one to its owner.
class AbortOnError {
  public:
    AbortOnError(sk::nccl::World& world, Job& job)
        : world_(world), job_(job), under_way_(std::uncaught_exceptions()) {}
    AbortOnError(const AbortOnError&) = delete;
    AbortOnError& operator=(const AbortOnError&) = delete;
    ~AbortOnError() {
        if (std::uncaught_exceptions() == under_way_) { return; }
        world_.abort();
        job_.abort();
    }

  private:
    sk::nccl::World& world_;
    Job& job_;
    int under_way_;
};

/// Trains, and returns the loss of every step.
inline std::vector<float> train(const Options& options, const std::vector<std::uint8_t>& text, Gpu& gpu, Job& job,
                                const Report& report, sk::nccl::Options nccl = {}) {
    const sk::DynamicPolicy policy = options.policy.policy();
    using Mesh = sk::DeviceMesh<sk::dynamic>;
    const Shape& shape = options.shape;
    const Inputs inputs(gpu, options, job, text);
    const float weight = 1 / static_cast<float>(inputs.samples() * options.microbatches);
    Network<float> network(gpu, shape, inputs.samples());
    const DeviceArray<float> loss(1, gpu.stream);
    const DeviceArray<float> losses(options.steps, gpu.stream);

    nccl.compute = gpu.stream;
    sk::nccl::World world(sk::nccl::Borrow{job.comm}, nccl);
    // After the memory, whose release waits for what is under way; before the first collective, which makes
    // communicators.
    const AbortOnError guard(world, job);
    auto rank = sk::nccl::make_rank(Mesh(job.ranks), world);
    ShardedModel parts(rank, shape, policy, options.offload);
    sk::Model model{parts.embedding, parts.blocks, parts.head};
    model.initialize([&](auto path, auto parameter, std::uint64_t i) {
        return initial_value(shape, options.seed, path, parameter, i);
    });
    sk::AdamW optimizer{model, {.learning_rate = options.learning_rate}};
    const sk::planner::PlanOptions steps{.microbatches = options.microbatches,
                                         .norms_per_step = options.clip > 0 ? 1U : 0U};
    const sk::planner::MemoryPlan planned = sk::plan(model, steps).memory;
    if (!options.schedule) { report.model_bytes((planned.total() - planned.staging - planned.engine).value); }
    std::optional<sk::schedule::Following> following;
    // After the guard: NCCL's abort waits for graphs that use the communicator.
    std::optional<sk::gpu::StepGraph> graph;

    const auto train_step = [&] {
        check(cudaMemsetAsync(loss.data(), 0, loss.bytes(), gpu.stream), "cudaMemsetAsync");
        sk::Accumulation accumulation{model, options.microbatches};
        for (std::size_t m = 0; m < options.microbatches; ++m) {
            const Batch batch = inputs.batch(m);
            network.embed(embedding<const float>(parts.embedding.unshard()), batch);
            for (std::size_t l = 0; l < shape.layers; ++l) {
                network.block(l, block<const float>(parts.blocks[l].unshard()));
            }
            const auto with_gradients = [&](auto& layer, auto work) {
                const auto w = layer.unshard();
                auto g = accumulation.gradients(layer);
                work(w, g);
                accumulation.add(std::move(g));
            };
            with_gradients(parts.head, [&](const auto& w, const auto& g) {
                network.head(head<const float>(w), head<float>(g), batch, weight, loss.data());
            });
            for (std::size_t l = shape.layers; l-- > 0;) {
                with_gradients(parts.blocks[l], [&](const auto& w, const auto& g) {
                    network.block_backward(l, block<const float>(w), block<float>(g));
                });
            }
            with_gradients(parts.embedding, [&](const auto& w, const auto& g) {
                network.embed_backward(embedding<const float>(w), embedding<float>(g), batch);
            });
        }
        if (options.clip > 0) {
            optimizer.step(std::move(accumulation), {.max_norm = options.clip});
        } else {  // without a norm
            optimizer.step(sk::reduce(std::move(accumulation), sk::mean));
        }
        sk::all_reduce_in_place(rank.world(), sk::ReduceOp::sum, std::span<float>(loss.data(), 1));
    };
    for (std::size_t step = 0; step < options.steps; ++step) {
        inputs.load(step);
        // The first step is a plain one: it takes memory, which a capture refuses.
        if (options.graph && step > 0) {
            if (!graph) { graph.emplace(rank.streams(), train_step); }
            graph->launch();
            world.keep_pace(rank.compute_stream());  // looks after the peers, as verbs outside of graphs do
        } else if (options.schedule && step == 0) {
            const auto groups = sk::describe_groups(model);
            const sk::Schedule ahead = sk::schedule::prefetch(sk::schedule::record(model, train_step), groups);
            const sk::Schedule schedule = sk::schedule::overlap_reductions(ahead, groups);
            following.emplace(sk::schedule::follow(model, schedule));
            report.model_bytes(sk::schedule::plan(schedule, groups, rank.grid()).memory.total().value);
        } else {
            train_step();
        }
        check(cudaMemcpyAsync(losses.data() + step, loss.data(), loss.bytes(), cudaMemcpyDeviceToDevice, gpu.stream),
              "cudaMemcpyAsync");

        if (step % options.every == 0 || step + 1 == options.steps) {
            float sum = 0;
            rank.compute_stream().synchronize();  // looks after the peers while it waits
            download(gpu.stream, &sum, loss.data(), 1);
            report.step(step, sum / static_cast<float>(job.ranks));
        }
    }
    std::vector<float> result(options.steps);
    download(gpu.stream, result.data(), losses.data(), result.size());
    for (float& each : result) { each /= static_cast<float>(job.ranks); }
    return result;
}

}  // namespace cuda_trainer::after
