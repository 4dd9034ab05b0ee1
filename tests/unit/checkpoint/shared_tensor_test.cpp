// SPDX-License-Identifier: Apache-2.0
// Several parameters in one tensor of a file: a gate and what it gates, queries and keys.
#include <shardkit/checkpoint.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/core/bf16.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/sharded/sharded.hpp>
#include <shardkit/step/accumulation.hpp>
#include <shardkit/step/reduce.hpp>

#include "temporary_folder.hpp"
#include "unit/thrown_message.hpp"

namespace shared_tensor_test {

namespace {

namespace sk = shardkit;
using temporary_folder::contents;
using temporary_folder::Folder;
using Mesh = sk::DeviceMesh<sk::dynamic, sk::dynamic>;

constexpr std::size_t width = 6;
struct Gate : sk::Param<"gate", sk::bf16, 10, width>, sk::tp::Split<0> {};
struct Query : sk::Param<"query", sk::bf16, 4, width> {};
struct Up : sk::Param<"up", sk::bf16, 6, width>, sk::tp::Split<0> {};
struct Key : sk::Param<"key", sk::bf16, 2, width>, sk::tp::Split<1> {};
struct Norm : sk::Param<"norm", sk::bf16, width> {};
using Block = sk::Params<Gate, Query, Up, Key, Norm>;
/// In a group of its own.
struct Value : sk::Param<"value", sk::bf16, 3, width> {};
using Mixed = sk::Precision<sk::bf16, float>;

sk::checkpoint::StoredAs together(std::string_view path, const sk::ParameterRecord& parameter) {
    if (parameter.name == Gate::name) { return sk::checkpoint::stored_within("gate_up", 16, 0, parameter.shape); }
    if (parameter.name == Up::name) { return sk::checkpoint::stored_within("gate_up", 16, 10, parameter.shape); }
    if (parameter.name == Query::name) {
        // The rows of halves and not of pairs, and queries behind the values.
        auto stored = sk::checkpoint::stored_within("vqk", 9, 3, parameter.shape);
        stored.extents = {2, 2, width};
        stored.order = {1, 0, 2};
        return stored;
    }
    if (parameter.name == Key::name) { return sk::checkpoint::stored_within("vqk", 9, 7, parameter.shape); }
    if (parameter.name == Value::name) { return sk::checkpoint::stored_within("vqk", 9, 0, parameter.shape); }
    return sk::checkpoint::stored_by_path(path, parameter);
}
/// Exact in bf16.
double value(std::string_view name, std::uint64_t i) {
    return static_cast<double>(i) + (name.front() == 'u' || name.front() == 'k' ? 64 : 0);
}

struct Training {
    Training(sk::Rank& rank, const sk::DynamicPolicy& policy)
        : block(rank, "m", {}, {policy}), values(rank, "n", {}, {policy}), model(block, values), optimizer(model) {
        model.initialize([](auto, auto name, std::uint64_t i) { return value(name, i); });
    }
    void step() {
        sk::Accumulation accumulation{model};
        const auto add = [&](auto& group) {
            auto gradients = accumulation.gradients(group);
            for (std::size_t p = 0; p < group.parameters().size(); ++p) {
                const auto& parameter = group.parameters()[p];
                auto view = gradients.view(p);
                parameter.part.for_each_run(0, view.size(), [&](std::size_t i, std::size_t whole, std::size_t run) {
                    for (std::size_t k = 0; k < run; ++k) {
                        view.data()[i + k] = static_cast<float>(value(parameter.name, whole + k) / 8);
                    }
                });
            }
            accumulation.add(std::move(gradients));
        };
        add(block);
        add(values);
        optimizer.step(std::move(accumulation));
    }
    void require_values(double factor) {
        const auto require = [&](auto& group) {
            for (std::size_t p = 0; p < group.parameters().size(); ++p) {
                std::vector<float> whole(group.parameters()[p].shape.numel());
                group.read_full(p, whole);
                for (std::size_t i = 0; i < whole.size(); ++i) {
                    if (whole[i] != static_cast<float>(factor * value(group.parameters()[p].name, i))) {
                        throw std::logic_error("another value");
                    }
                }
            }
        };
        require(block);
        require(values);
    }

    sk::Sharded<Block, sk::DynamicPolicy, Mixed> block;
    sk::Sharded<Value, sk::DynamicPolicy, Mixed> values;
    sk::Model model;
    sk::AdamW optimizer;
};

const std::vector<std::pair<Mesh, sk::DynamicPolicy>> places{
    {Mesh(1, 1), sk::DynamicPolicy(sk::NoShard{})},
    {Mesh(3, 1), sk::DynamicPolicy(sk::FullShard{})},
    {Mesh(2, 1), sk::DynamicPolicy(sk::ShardOptimizer{})},
    {Mesh(4, 1), sk::DynamicPolicy(sk::HybridShard<2>{})},
};

/// The tensor of that name, in whichever of a set's files.
std::vector<double> tensor(const std::string& step, const std::string& set, const std::string& name) {
    for (const auto& [file, bytes] : contents(step)) {
        if (!file.ends_with(".safetensors") || file.find(set) == std::string::npos) { continue; }
        const sk::safetensors::File opened(step + "/" + file);
        if (opened.find(name) != nullptr) { return opened.read<double>(name); }
    }
    return {};
}

}  // namespace

TEST_CASE("several parameters are one tensor of a file and back: a plain concatenation, on every mesh and policy") {
    const Folder folder;
    std::map<std::string, std::string> first;
    std::size_t number = 0;
    const auto on = [&](const Mesh& mesh, const sk::DynamicPolicy& policy) {
        CAPTURE(number);
        const std::string run = folder.file(std::to_string(number++));
        sk::threads::run(mesh, [&](auto& rank) {
            const sk::checkpoint::SaveOptions options{.names = together, .max_file_bytes = 200};
            Training training(rank, policy);
            const sk::checkpoint::State state{training.model, training.optimizer};
            sk::checkpoint::save(rank, run, 1, state, options);
            training.model.initialize([](auto, auto, std::uint64_t) { return -1.0; });
            sk::checkpoint::load(rank, run + "/step-00000001", state, {.names = together});
            training.require_values(1);
            training.step();
            sk::checkpoint::save(rank, run, 2, state, options);
            training.step();
            sk::checkpoint::load(rank, run + "/step-00000002", state, {.names = together});
            sk::checkpoint::save(rank, run, 3, state, options);
        });
        if (first.empty()) { first = contents(run); }
        CHECK(contents(run) == first);
        for (const auto& [file, bytes] : first) {
            // The manifest has the step.
            const std::string other = "step-00000003" + file.substr(13);
            if (file.starts_with("step-00000002") && !file.ends_with("manifest.json")) {
                CHECK(first.at(other) == bytes);
            }
        }
    };
    for (const auto& [mesh, policy] : places) { on(mesh, policy); }
    on(Mesh(1, 2), sk::DynamicPolicy(sk::NoShard{}));
    const std::string step = folder.file("0/step-00000001");
    std::vector<double> gate_up;
    for (std::uint64_t i = 0; i < 10 * width; ++i) { gate_up.push_back(value("gate", i)); }
    for (std::uint64_t i = 0; i < 6 * width; ++i) { gate_up.push_back(value("up", i)); }
    std::vector<double> vqk;
    for (std::uint64_t i = 0; i < 3 * width; ++i) { vqk.push_back(value("value", i)); }
    for (const std::uint64_t row : {0U, 2U, 1U, 3U}) {
        for (std::uint64_t i = 0; i < width; ++i) { vqk.push_back(value("query", row * width + i)); }
    }
    for (std::uint64_t i = 0; i < 2 * width; ++i) { vqk.push_back(value("key", i)); }
    for (const char* set : {"model", "master"}) {
        CHECK(tensor(step, set, "gate_up") == gate_up);
        CHECK(tensor(step, set, "vqk") == vqk);
    }
    CHECK(tensor(step, "model", "m.norm").size() == width);
    // A gradient's tenth is the first moment after one step.
    const auto moments = tensor(folder.file("0/step-00000002"), "exp_avg-", "gate_up");
    REQUIRE(moments.size() == gate_up.size());
    for (std::size_t i = 0; i < moments.size(); ++i) { CHECK(std::abs(moments[i] - gate_up[i] / 80) < 1e-6); }
}

TEST_CASE(
    "tensors that are shared are loaded by tp of 2 from what tp of 1 saved, and by a model that has them as one") {
    const Folder folder;
    const std::string path = folder.file("model.safetensors");
    sk::threads::run(Mesh(3, 1), [&](auto& rank) {
        Training training(rank, sk::DynamicPolicy(sk::FullShard{}));
        sk::checkpoint::save_model(rank, path, training.model, {.names = together});
    });
    struct Packed : sk::Param<"gate_up", sk::bf16, 16, width> {};
    sk::threads::run(Mesh(2, 1), [&](auto& rank) {
        sk::Sharded<Packed, sk::FullShard, Mixed> layer{rank, "m"};
        sk::Model model{layer};
        const auto names = [](std::string_view, const sk::ParameterRecord& parameter) {
            return sk::checkpoint::stored(std::string(parameter.name), parameter.shape);
        };
        sk::checkpoint::load_model(rank, path, model, {.names = names, .subset = true});
        const auto window = layer.unshard();
        CHECK(static_cast<float>(window[Packed{}][10 * width + 1]) == value("up", 1));
    });
    sk::threads::run(Mesh(2, 2), [&](auto& rank) {
        sk::Sharded<sk::Params<Gate, Up>, sk::FullShard, Mixed> layer{rank, "m"};
        sk::Model model{layer};
        sk::checkpoint::load_model(rank, path, model, {.names = together, .subset = true});
        std::vector<float> up(6 * width);
        layer.read_full(Up{}, up);
        for (std::size_t i = 0; i < up.size(); ++i) { CHECK(up[i] == value("up", i)); }
    });
}

TEST_CASE("what does not make one tensor is refused by name, and a flipped bit of a shared one is found") {
    const Folder folder;
    sk::threads::run(Mesh(2, 1), [&](auto& rank) {
        Training training(rank, sk::DynamicPolicy(sk::FullShard{}));
        const auto with = [](std::string_view name, sk::checkpoint::StoredAs stored) -> sk::checkpoint::TensorNames {
            return [name, stored](std::string_view path, const sk::ParameterRecord& parameter) {
                return parameter.name == name ? stored : together(path, parameter);
            };
        };
        const auto refused = [&](const sk::checkpoint::TensorNames& names) {
            return thrown_message<std::invalid_argument>([&] {
                sk::checkpoint::save(rank, folder.path(), 1,
                                     sk::checkpoint::State{training.model, training.optimizer}, {.names = names});
            });
        };
        CHECK(has(refused(with("up", {"gate_up", {16, width}, {}, {}, {}, 9 * width})),
                  "'m.gate' ends at element 60 and 'm.up' begins at 54"));
        CHECK(has(refused(with("gate", {"gate_up", {16, width}, {}, {}, {}, 31 * width})),
                  "expected at most 8 extents, and as many elements from 186 on"));
        CHECK(has(refused(with("up", {"gate_up", {6, width}})),
                  "'m.gate' and 'm.up' are both stored as 'gate_up': expected a name for each tensor"));
        CHECK(has(refused(with("up", {"gate_up", {17, width}, {}, {}, {}, 10 * width})),
                  "'m.gate' and 'm.up' share 'gate_up', as bf16 [16, 6] and bf16 [17, 6]"));
        CHECK(has(refused(with("up", {"up", {6, width}})), "'m.gate' ends at element 60 and its end begins at 96"));
        const sk::checkpoint::State state{training.model, training.optimizer};
        sk::checkpoint::save(rank, folder.path(), 2, state, {.names = together});
        // One of those that share it is not in the state that is loaded.
        CHECK(has(thrown_message<sk::FileError>([&] {
                      sk::checkpoint::load(rank, folder.file("step-00000002"), state,
                                           {.names = with("up", {"m.up", {6, width}}), .subset = true});
                  }),
                  "tensor 'gate_up' is shared by 1 parameters of the state, which are not one for each"));
        // A name that two parameters have in common is told once.
        const auto other = [](std::string_view path, const sk::ParameterRecord& parameter) {
            auto stored = together(path, parameter);
            if (stored.name == "gate_up") { stored.name = "up_gate"; }
            return stored;
        };
        const std::string lacks = thrown_message<sk::FileError>(
            [&] { sk::checkpoint::load(rank, folder.file("step-00000002"), state, {.names = other}); });
        CHECK(has(lacks, "lack 'up_gate', 'exp_avg of up_gate', 'exp_avg_sq of up_gate',"));
        training.require_values(1);
    });
    const std::string file = folder.file("step-00000002/model.safetensors");
    const sk::safetensors::File opened(file);
    const auto at = opened.at("gate_up");
    std::uint64_t header = 0;
    std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
    bytes.read(reinterpret_cast<char*>(&header), sizeof header);
    for (const std::uint64_t byte : {at.bytes.begin, at.bytes.begin + 61, at.bytes.end - 1}) {
        const auto flip = [&] {
            bytes.seekg(static_cast<std::streamoff>(8 + header + byte));
            const char was = static_cast<char>(bytes.peek());
            bytes.seekp(static_cast<std::streamoff>(8 + header + byte));
            bytes.put(static_cast<char>(was ^ 4));
            bytes.flush();
        };
        flip();
        sk::threads::run(Mesh(3, 1), [&](auto& rank) {
            Training training(rank, sk::DynamicPolicy(sk::FullShard{}));
            const sk::checkpoint::State state{training.model, training.optimizer};
            CHECK(has(thrown_message<sk::FileError>([&] {
                          sk::checkpoint::load(rank, folder.file("step-00000002"), state, {.names = together});
                      }),
                      "gate_up"));
        });
        flip();
    }
    sk::threads::run(Mesh(3, 1), [&](auto& rank) {
        Training training(rank, sk::DynamicPolicy(sk::FullShard{}));
        const sk::checkpoint::State state{training.model, training.optimizer};
        sk::checkpoint::load(rank, folder.file("step-00000002"), state, {.names = together});
        training.require_values(1);
        // Parameters that share a tensor are as far as each other, or have none that they share.
        sk::AdamW apart{
            training.model, {}, {{.matches = [](auto, auto name) { return name == "up"; }, .beta1 = 0.5}}};
        sk::Accumulation accumulation{training.model};
        accumulation.add_zero(training.block);
        accumulation.add_zero(training.values);
        apart.step(std::move(accumulation));
        CHECK(has(thrown_message<std::invalid_argument>([&] {
                      sk::checkpoint::save(rank, folder.path(), 4, sk::checkpoint::State{training.model, apart},
                                           {.names = together});
                  }),
                  "'m.gate' and 'm.up' share the tensor 'gate_up' and have not the same beta1_power"));
    });
}

}  // namespace shared_tensor_test
