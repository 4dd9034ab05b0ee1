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
#include <shardkit/verbs/all_reduce.hpp>
#endif

#include "../train_gpt/model/initialise.hpp"
#include "../train_gpt/model/parameters.hpp"
#include "network.hpp"

/// The trainer after: a policy decides what each rank holds, and thereby what is communicated.
namespace cuda_trainer::after {

namespace sk = shardkit;
using namespace train_gpt;  // the model, and its parameters as types

using HeadParams = sk::Params<NormWeight<float>, NormBias<float>, LogitsWeight<float>>;

/// The device pointers in a window, or in a handle of gradients.
template <class P>
EmbeddingWeights<P> embedding(const auto& from) {
    return {from[Wte<float>{}], from[Wpe<float>{}]};
}
template <class P>
HeadWeights<P> head(const auto& from) {
    return {from[NormWeight<float>{}], from[NormBias<float>{}], from[LogitsWeight<float>{}]};
}

/// The parameters, in one group for each part of the model.
struct ShardedModel {
    sk::Sharded<EmbeddingGroup<float>, sk::DynamicPolicy> embedding;
    std::vector<sk::Sharded<BlockGroup<float>, sk::DynamicPolicy>> blocks;
    sk::Sharded<HeadParams, sk::DynamicPolicy> head;

    ShardedModel(sk::Rank& rank, const ModelConfig& config, const sk::DynamicPolicy& policy)
        : embedding(rank, "embedding", embedding_shapes<float>(config), {.policy = policy}),
          head(rank, "head",
               {sk::shape<NormWeight<float>>(config.width), sk::shape<NormBias<float>>(config.width),
                sk::shape<LogitsWeight<float>>(config.vocabulary, config.width)},
               {.policy = policy}) {
        for (std::size_t l = 0; l < config.layers; ++l) {
            blocks.push_back({rank, "blocks." + std::to_string(l), block_shapes<float>(config), {.policy = policy}});
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
inline std::vector<double> train(const Options& options, const std::vector<Token>& text, Job& job,
                                 const Report& report, sk::nccl::Options nccl = {}) {
    const sk::DynamicPolicy policy = options.policy.policy();
    using Mesh = sk::DeviceMesh<sk::dynamic>;
    const ModelConfig& config = options.model;
    const BatchShape batch = options.pass(job.ranks);
    Inputs inputs(options, job, text);
    const Losses losses(options, job);
    const DeviceArray<double> loss(options.microbatches, job.stream);
    Network network(job.stream, config, batch);
    const double weight = 1 / static_cast<double>(batch.tokens() * options.microbatches);

    nccl.compute = job.stream;
    sk::nccl::World world(sk::nccl::Borrow{job.comm}, nccl);
    // After the memory, whose release waits for what is under way; before the first collective, which makes
    // communicators.
    const AbortOnError guard(world, job);
    auto rank = sk::nccl::make_rank(Mesh(job.ranks), world);
    ShardedModel parts(rank, config, policy);
    sk::Model model{parts.embedding, parts.blocks, parts.head};
    model.initialize(Initialiser(options.seed, config));
    sk::AdamW optimizer{model, {.learning_rate = options.learning_rate}};
    const sk::planner::PlanOptions steps{.microbatches = options.microbatches,
                                         .norms_per_step = options.clip > 0 ? 1U : 0U};
    const sk::planner::MemoryPlan planned = sk::plan(model, steps).memory;
    if (!options.schedule) { report.model_bytes((planned.total() - planned.staging - planned.engine).value); }
    std::optional<sk::schedule::Following> following;
    // After the guard: NCCL's abort waits for graphs that use the communicator.
    std::optional<sk::gpu::StepGraph> graph;

    const auto train_step = [&] {
        sk::Accumulation accumulation{model, options.microbatches};
        for (std::size_t m = 0; m < options.microbatches; ++m) {
            const Token* const tokens = inputs.tokens(m);
            network.embed(embedding<const float*>(parts.embedding.unshard()), tokens);
            for (std::size_t l = 0; l < config.layers; ++l) {
                network.block(l, block_weights<const float*, float>(parts.blocks[l].unshard()));
            }
            const auto with_gradients = [&](auto& layer, auto overwritten, auto work) {
                const auto w = layer.unshard();
                auto g = accumulation.gradients(layer);
                work(w, g, g.overwrites(overwritten) ? Into::overwrite : Into::add);
                accumulation.add(std::move(g));
            };
            with_gradients(parts.head, LogitsWeight<float>{}, [&](const auto& w, const auto& g, Into into) {
                network.head(head<const float*>(w), head<float*>(g), into, inputs.targets(m), weight,
                             loss.data() + m);
            });
            for (std::size_t l = config.layers; l-- > 0;) {
                with_gradients(parts.blocks[l], QkvWeight<float>{}, [&](const auto& w, const auto& g, Into into) {
                    network.block_backward(l, block_weights<const float*, float>(w), block_weights<float*, float>(g),
                                           into);
                });
            }
            auto g = accumulation.gradients(parts.embedding);
            network.embed_backward(tokens, embedding<float*>(g));
            accumulation.add(std::move(g));
        }
        if (options.clip > 0) {
            optimizer.step(std::move(accumulation), {.max_norm = options.clip});
        } else {  // without a norm
            optimizer.step(sk::reduce(std::move(accumulation), sk::mean));
        }
        sk::all_reduce_in_place(rank.world(), sk::ReduceOp::sum, std::span<double>(loss.data(), loss.size()));
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
        check(cudaMemcpyAsync(losses.of(step), loss.data(), loss.bytes(), cudaMemcpyDeviceToDevice, job.stream),
              "cudaMemcpyAsync");

        if (step % options.every == 0 || step + 1 == options.steps) {
            rank.compute_stream().synchronize();  // looks after the peers while it waits
            report.step(step, losses.means(step, 1).front());
        }
    }
    return losses.means(0, options.steps);
}

}  // namespace cuda_trainer::after
