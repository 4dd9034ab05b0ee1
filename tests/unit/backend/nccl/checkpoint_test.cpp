// SPDX-License-Identifier: Apache-2.0
// Checkpoints of devices: the bytes of the host's, read through pinned memory beside the rank's own work.
#include <shardkit/checkpoint.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/core/bf16.hpp>
#include <shardkit/core/fp16.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/sharded/sharded.hpp>
#include <shardkit/step/accumulation.hpp>
#include <shardkit/step/reduce.hpp>

#include "captured_step.hpp"
#include "checkpoint_training.hpp"
#include "paced_ranks.hpp"
#include "temporary_folder.hpp"
#include "test_size.hpp"

namespace checkpoint_test {

namespace {

namespace sk = shardkit;
namespace fs = std::filesystem;
namespace all = checkpoint_training;
using temporary_folder::contents;
using Mesh = sk::DeviceMesh<sk::dynamic, sk::dynamic>;

// Of several chunks of pinned memory and a rest, of runs over tp that are short, of fewer elements than ranks.
struct Large : sk::Param<"large", float, 560'001> {};
struct Narrow : sk::Param<"narrow", float, 5, 12>, sk::tp::Split<1> {};
struct Two : sk::Param<"two", float, 2> {};
using Group = sk::Params<Large, Narrow, Two>;

struct Training {
    using Layer = sk::Sharded<Group, sk::DynamicPolicy>;

    Training(sk::Rank& rank, const sk::DynamicPolicy& policy)
        : layer(rank, "layer", {}, {policy}), optimizer(groups), state(groups, optimizer) {}

    Layer layer;
    sk::Model groups{layer};
    sk::AdamW optimizer;
    sk::checkpoint::State state;
};

/// The large parameter as two tensors, each read into memory that has the other one's elements already.
sk::checkpoint::StoredAs in_two(std::string_view path, const sk::ParameterRecord& parameter) {
    if (parameter.name != Large::name) { return sk::checkpoint::stored_by_path(path, parameter); }
    return sk::checkpoint::stored_rows({{"first", 300'000}, {"second", 260'001}}, parameter.shape);
}

/// A state whose every element is another.
void save_on_host(const std::string& folder, const sk::checkpoint::TensorNames& names) {
    sk::threads::run(Mesh(1, 1), [&](auto& rank) {
        Training training(rank, sk::DynamicPolicy(sk::NoShard{}));
        training.layer.initialize([](std::string_view, std::string_view name, std::uint64_t i) {
            return static_cast<double>(i + name.size()) / 1024;
        });
        sk::Accumulation accumulation{training.groups};
        auto gradients = accumulation.gradients(training.layer);
        for (std::size_t p = 0; p < Group::count; ++p) {
            auto view = gradients.view(p);
            for (std::size_t i = 0; i < view.size(); ++i) { view.data()[i] = static_cast<float>(i + 1); }
        }
        accumulation.add(std::move(gradients));
        training.optimizer.step(sk::reduce(std::move(accumulation), sk::mean));
        sk::checkpoint::save(rank, folder, 3, training.state, {.names = names});
    });
}

enum class Way { save, begin_save, begin_save_copy };

/// Loads what the host has saved on devices, and saves it again.
std::string load_and_save(const Mesh& mesh, paced_ranks::Paces paces, const sk::DynamicPolicy& policy, Way way,
                          const sk::checkpoint::TensorNames& names, const std::string& from, const std::string& to) {
    return paced_ranks::run(mesh, paces, {}, [&](auto& rank, const auto&) {
        Training training(rank, policy);
        sk::checkpoint::load(rank, from, training.state, {.names = names});
        if (way == Way::save) {
            sk::checkpoint::save(rank, to, 3, training.state, {.names = names});
            return;
        }
        const auto staging = way == Way::begin_save ? sk::checkpoint::Staging::none : sk::checkpoint::Staging::copy;
        auto pending = sk::checkpoint::begin_save(rank, to, 3, training.state, {.names = names, .staging = staging});
        // An update waits for the writer, or has nothing to do with what is written.
        sk::Accumulation accumulation{training.groups};
        auto gradients = accumulation.gradients(training.layer);
        for (std::size_t p = 0; p < Group::count; ++p) {
            auto view = gradients.view(p);
            sk::host::AnyKernels::fill(rank.compute_stream(), std::span(view.data(), view.size()), 1.0F);
        }
        accumulation.add(std::move(gradients));
        training.optimizer.step(sk::reduce(std::move(accumulation), sk::mean));
        std::move(pending).commit();
    });
}

/// Every `one_of`-th mesh of 1, 2, 3, 5 and 8 devices with a policy: loads what the one before it has saved, and
/// saves the same bytes. What a load gives depends on the bytes alone, so that this speaks for all pairs, the host's
/// too.
template <class T, class Optimizer>
void check_matrix(std::size_t files, std::size_t one_of, std::size_t first) {
    const temporary_folder::Folder folder;
    all::InCache calls;
    std::string last = folder.file("host");
    const auto values = all::save_first<T, Optimizer>(last, calls);
    const auto expected = contents(last + "/step-00000001");
    REQUIRE(expected.size() == files);
    std::size_t number = first;
    for (const std::size_t world : {1U, 2U, 3U, 5U, 8U}) {
        for (const all::Mesh& mesh : all::meshes(world)) {
            for (const sk::DynamicPolicy& policy : all::policies(mesh)) {
                if (number++ % one_of != 0) { continue; }
                CAPTURE(mesh.describe());
                CAPTURE(policy.name());
                const std::string next = folder.file(std::to_string(number));
                REQUIRE(paced_ranks::run(mesh, paced_ranks::all_paces[number % 4], {}, [&](auto& rank, const auto&) {
                            all::load_and_save<T, Optimizer>(rank, policy, values, last, next, calls);
                        }) == "");
                REQUIRE(contents(next + "/step-00000001") == expected);
                fs::remove_all(last);
                last = next;
            }
        }
    }
    CHECK(number >= first + 87);  // none is lost: as many as there were with five policies
}
void check_matrix(std::size_t one_of) {
    check_matrix<float, all::WithAdamW>(5, one_of, 0);
    check_matrix<sk::bf16, all::WithAdamW>(6, one_of, 1);
    check_matrix<sk::fp16, all::WithAdamW>(6, one_of, 2);
    check_matrix<double, all::WithPlainSgd>(3, one_of, 3);
}

constexpr double rate = 0.25;

/// Gradients of one, written by a kernel.
struct Ones {
    std::span<double> to;

    void operator()() const {
        for (double& value : to) { value = 1; }
    }
};
/// Two parameters of 5 and 3 elements, the second one frozen at first: each step moves what trains by `rate`.
struct Thawed {
    using Layer = sk::Sharded<sk::TensorList<double>, sk::FullShard>;
    using Optimizer = sk::AdamW;

    Thawed(sk::Rank& its_rank, bool frozen)
        : rank(its_rank), layer(rank, "layer", {{"a", {5}}, {"b", {3}, {.frozen = frozen}}}) {
        layer.initialize([](auto, auto, std::uint64_t i) { return static_cast<double>(i); });
    }

    void step() {
        sk::Accumulation accumulation{model};
        auto gradients = accumulation.gradients(layer);
        for (std::size_t p = 0; p < 2; ++p) {
            sk::host::AnyKernels::run_once(rank.compute_stream(), Ones{gradients.view(p)});
        }
        accumulation.add(std::move(gradients));
        optimizer.step(std::move(accumulation));
    }
    std::vector<double> values() {
        std::vector<double> all(8);
        layer.read_full(0, std::span(all).first(5));
        layer.read_full(1, std::span(all).last(3));
        return all;
    }

    sk::Rank& rank;
    Layer layer;
    sk::Model model{layer};
    Optimizer optimizer{model, {.learning_rate = rate, .epsilon = 1e-30, .weight_decay = 0}};
    sk::checkpoint::State state{model, optimizer};
};

}  // namespace

TEST_CASE("nccl: meshes and policies in four precisions load and save the host's bytes") {
    check_matrix(test_size::reduced() ? 29 : 13);
}
// In minutes: test_unit_backend_nccl --test-case='*every mesh*' --no-skip
TEST_CASE("nccl: every mesh and policy in four precisions loads and saves the host's bytes" * doctest::skip()) {
    check_matrix(1);
}

TEST_CASE("nccl: what devices save is what the host has saved, whatever way and pace") {
    const temporary_folder::Folder folder;
    sk::checkpoint::TensorNames names = sk::checkpoint::stored_by_path;
    SUBCASE("parameters as they are") { names = sk::checkpoint::stored_by_path; }
    SUBCASE("one in two tensors") { names = in_two; }
    save_on_host(folder.file("host"), names);
    const auto expected = contents(folder.file("host/step-00000003"));
    REQUIRE(expected.size() == 5);
    struct Case {
        Mesh mesh;
        sk::DynamicPolicy policy;
        Way way;
    };
    const Case cases[] = {{Mesh(1, 1), sk::DynamicPolicy(sk::NoShard{}), Way::begin_save},
                          {Mesh(2, 1), sk::DynamicPolicy(sk::FullShard{}), Way::save},
                          {Mesh(2, 2), sk::DynamicPolicy(sk::ShardOptimizer{}), Way::begin_save},
                          {Mesh(4, 1), sk::DynamicPolicy(sk::HybridShard<2>{}), Way::begin_save_copy}};
    std::size_t number = 0;
    for (const Case& each : cases) {
        for (std::size_t run = 0; run < (test_size::reduced() ? 1U : 2U); ++run) {
            const paced_ranks::Paces paces = paced_ranks::all_paces[run == 0 ? number % 4 : 3];
            CAPTURE(number);
            const std::string to = folder.file("nccl" + std::to_string(number++));
            CHECK(load_and_save(each.mesh, paces, each.policy, each.way, names, folder.file("host/step-00000003"),
                                to) == "");
            CHECK(contents(to + "/step-00000003") == expected);
            fs::remove_all(to);
        }
    }
}

TEST_CASE("nccl: a load that splits what a captured step has in one is refused before it reads a tensor") {
    const temporary_folder::Folder folder;
    sk::threads::run(Mesh(1, 1), [&](auto& rank) {
        Thawed trained(rank, true);
        trained.step();
        sk::checkpoint::save(rank, folder.path(), 1, trained.state);
    });
    const std::string error =
        paced_ranks::run(Mesh(2, 1), paced_ranks::all_paces[3], {}, [&](auto& rank, const auto& streams) {
            Thawed trainer(rank, false);
            trainer.step();
            const step_trainer::CapturedStep graph(streams, [&] { trainer.step(); });
            graph.launch();
            const std::vector<double> before = trainer.values();
            const auto load = [&](Thawed& into) {
                return sk::checkpoint::load(rank, folder.file("step-00000001"), into.state, {.subset = true});
            };
            std::string refused;
            try {
                load(trainer);
            } catch (const sk::UsageError& caught) { refused = caught.what(); }
            CHECK(refused.find("a graph has captured a step") != std::string::npos);
            CHECK(trainer.values() == before);
            CHECK(trainer.optimizer.steps(trainer.layer) == 2);
            graph.launch();  // goes on as if nothing had been asked
            std::vector<double> expected = before;
            for (double& value : expected) { value -= rate; }
            for (std::size_t i = 0; i < expected.size(); ++i) {
                CHECK(std::abs(trainer.values()[i] - expected[i]) < 1e-12);
            }
            CHECK(trainer.optimizer.steps(trainer.layer) == 3);
            // The remedy that the error names.
            Thawed other(rank, false);
            load(other);
            expected = other.values();
            other.step();
            for (std::size_t i = 0; i < expected.size(); ++i) {
                CHECK(std::abs(other.values()[i] - (expected[i] - rate)) < 1e-12);
            }
        });
    CHECK(error == "");
}

}  // namespace checkpoint_test
