// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <vector>

#include <doctest/doctest.h>

#include "trainings.hpp"

using namespace train_gpt;
using namespace train_gpt::test;

namespace meshes_test {

namespace {

Options base_of_meshes() {
    Options options = base();
    options.model = {8, 2, 16, 4, HeadKind::tied};
    options.batch = 12;
    return options;
}

const std::vector<program::MeshExtents>& meshes() {
    static const std::vector<program::MeshExtents> all{{1, 1, 1}, {2, 1, 1}, {1, 2, 1}, {1, 1, 2},
                                                       {2, 2, 1}, {2, 1, 2}, {1, 2, 2}, {2, 2, 2},
                                                       {4, 2, 1}, {3, 1, 2}, {1, 4, 1}, {1, 1, 4}};
    static const std::vector<program::MeshExtents> few{{1, 2, 2}, {2, 2, 2}, {3, 1, 2}};
    return test_size::reduced() ? few : all;
}

/// Every policy of every mesh; the ways to split activations alternate, so that each mesh sees both.
template <class F>
void for_each_training(Options options, F f) {
    std::size_t turn = 0;
    for (const program::MeshExtents& mesh : meshes()) {
        options.mesh = mesh;
        for_each_policy(options, [&](Options each) {
            each.sequence_parallel = turn % 2 == 0 ? SequenceParallel::on : SequenceParallel::off;
            each.context = turn / 2 % 2 == 0 ? ContextExchange::ring : ContextExchange::gather;
            each.microbatches = turn % 3 == 0 ? 3 : 1;
            ++turn;
            f(each);
        });
    }
}

void check_every_mesh(Options options, Bounds bounds) {
    const Trained one = trained(options);
    for_each_training(options, [&](const Options& each) { check_close(each, one, trained(each), bounds); });
}

}  // namespace

TEST_SUITE("gpt.meshes") {
    TEST_CASE("fp64, SGD: every mesh and policy trains as one rank does") {
        Options options = base_of_meshes();
        options.optimizer = OptimizerKind::sgd;
        check_every_mesh(options, {1e-11, 1e-9, 1e-9});
    }

    TEST_CASE("fp64, AdamW, untied head: every mesh and policy trains as one rank does") {
        Options options = base_of_meshes();
        options.model.head = HeadKind::untied;
        check_every_mesh(options, {1e-11, 1e-9, 1e-9});
    }

    TEST_CASE("fp32 with clipping at 1: every mesh and policy stays close to one rank") {
        Options options = base_of_meshes();
        options.dtype = Dtype::fp32;
        options.clip = 1;
        check_every_mesh(options, {1e-4, 1e-3, 1e-2});
    }

    TEST_CASE("bf16 parameters: a 3D mesh stays close to one rank") {
        Options options = base_of_meshes();
        options.dtype = Dtype::bf16;
        options.steps = 20;
        const Trained one = trained(options);
        options.mesh = {2, 2, 2};
        for (const SequenceParallel sequence_parallel : {SequenceParallel::off, SequenceParallel::on}) {
            options.sequence_parallel = sequence_parallel;
            const Trained other = trained(options);
            for (std::size_t s = 0; s < options.steps; ++s) {
                CHECK(std::abs(one.losses[s] - other.losses[s]) <= 1e-3);
            }
        }
    }

    TEST_CASE("collectives by axis, peak bytes and allocations of meshes are the planned ones") {
        for (const program::MeshExtents mesh : {program::MeshExtents{1, 2, 1}, {1, 1, 2}, {2, 2, 2}}) {
            for (const Dtype dtype : {Dtype::fp32, Dtype::bf16}) {
                if (test_size::reduced() && (mesh.world() < 8 || dtype == Dtype::bf16)) { continue; }
                for (const SequenceParallel sequence_parallel : {SequenceParallel::off, SequenceParallel::on}) {
                    for (const ContextExchange context : {ContextExchange::ring, ContextExchange::gather}) {
                        Options options = base();
                        options.mesh = mesh;
                        options.dtype = dtype;
                        options.steps = 3;
                        options.batch = 8;
                        // What a rank keeps of its calls, whatever the model, is not planned: some kB beside its
                        // part.
                        options.model = {16, 3, mesh.world() < 8 ? 64U : 96U, 4, HeadKind::tied};
                        options.sequence_parallel = sequence_parallel;
                        options.context = context;
                        options.microbatches = mesh.dp;
                        if (test_size::reduced()) {
                            if ((context == ContextExchange::ring) != (sequence_parallel == SequenceParallel::on)) {
                                continue;
                            }
                            options.model.layers = 2;
                        }
                        for_each_policy(options, [&](const Options& each) { check_plan(each); });
                    }
                }
            }
        }
    }

    TEST_CASE("the work of split layers is one rank's over DP x TP x CP, and attention's is equal over cp") {
        Options options = base_of_meshes();
        options.steps = 2;
        const Trained one = trained(options);
        for (const program::MeshExtents& mesh : meshes()) {
            options.mesh = mesh;
            const Trained other = trained(options);
            CAPTURE(mesh.describe());
            CHECK(other.work.layers * mesh.world() == one.work.layers);
            CHECK(other.work.attention_least == other.work.attention_most);
            // Chunks that no query sees are left out: of 1 rank's square (2 cp + 1) / (4 cp).
            const std::size_t share = mesh.cp == 1 ? 4 : 2 * mesh.cp + 1;
            const std::size_t whole = mesh.cp == 1 ? 4 : 4 * mesh.cp;
            CHECK(other.work.attention_most * mesh.world() * whole == one.work.attention_most * share);
        }
    }

    TEST_CASE("memory falls with every axis: no rank holds a whole split weight, all logits, or in a ring all keys") {
        const auto peak = [](const ModelConfig& model, std::size_t batch, const program::MeshExtents& mesh,
                             ContextExchange context = ContextExchange::ring) {
            Options options = base();
            options.model = model;
            options.batch = batch;
            options.steps = 2;
            options.mesh = mesh;
            options.sequence_parallel = SequenceParallel::on;
            options.context = context;
            return static_cast<double>(run(options).peak_bytes_per_rank);
        };
        const program::MeshExtents one{1, 1, 1};
        const program::MeshExtents four_tp{1, 4, 1};
        // Parameters, gradients and states of 12 matrices of 128 x 128: next to nothing else.
        const ModelConfig weights{8, 1, 128, 4, HeadKind::tied};
        CHECK(peak(weights, 1, four_tp) < 0.29 * peak(weights, 1, one));
        // Logits are 16 times as wide as all else.
        const ModelConfig logits{64, 1, 4, 4, HeadKind::tied};
        CHECK(peak(logits, 16, four_tp) < 0.35 * peak(logits, 16, one));
        // Activations of a long sequence.
        const ModelConfig sequence{512, 1, 32, 2, HeadKind::tied};
        const double ring = peak(sequence, 1, {1, 1, 8});
        CHECK(ring < 0.25 * peak(sequence, 1, one));
        CHECK(peak(sequence, 1, {1, 1, 8}, ContextExchange::gather) > ring);
    }

    TEST_CASE("activations that are made again give the same bits in less memory, as planned") {
        for (const program::MeshExtents mesh : {program::MeshExtents{1, 1, 1}, {2, 1, 1}, {1, 2, 1}, {1, 2, 2}}) {
            Options options = base_of_meshes();
            options.model = {16, 3, 64, 4, HeadKind::tied};
            options.batch = 4;
            options.steps = 3;
            options.mesh = mesh;
            options.policy = {program::PolicyKind::full_shard};
            for (const ContextExchange context : {ContextExchange::ring, ContextExchange::gather}) {
                options.context = context;
                options.sequence_parallel =
                    context == ContextExchange::ring ? SequenceParallel::on : SequenceParallel::off;
                options.microbatches = context == ContextExchange::ring ? 1 : 2;
                options.model.recompute = false;
                const Trained kept = trained(options);
                options.model.recompute = true;
                const Trained made = trained(options);
                CAPTURE(mesh.describe());
                CHECK(made.losses == kept.losses);
                for (std::size_t p = 0; p < kept.parameters.size(); ++p) {
                    CHECK(made.parameters[p].values == kept.parameters[p].values);
                }
                CHECK(made.peak_bytes_per_rank < kept.peak_bytes_per_rank);
                check_plan(options);
            }
        }
    }

    TEST_CASE("a sample is the same text on every mesh") {
        Options options = base_of_meshes();
        options.model.vocabulary = 130;
        options.steps = 3;
        options.sample = 40;
        const std::string one = run(options).sample;
        REQUIRE(one.size() == 40);
        CHECK(std::all_of(one.begin(), one.end(), [](char c) { return static_cast<unsigned char>(c) < 130; }));
        for (const program::MeshExtents mesh : {program::MeshExtents{1, 2, 1}, {1, 1, 4}, {2, 2, 2}}) {
            options.mesh = mesh;
            for (const SequenceParallel sequence_parallel : {SequenceParallel::off, SequenceParallel::on}) {
                options.sequence_parallel = sequence_parallel;
                CAPTURE(mesh.describe());
                CHECK(run(options).sample == one);
            }
        }
    }
}

}  // namespace meshes_test
