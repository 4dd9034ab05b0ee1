// SPDX-License-Identifier: Apache-2.0
// Files of transformers' LlamaForCausalLM: names that need no mapping, and rotary heads whose pairs lie side by side.
#include <shardkit/checkpoint.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/sharded/sharded.hpp>

#include "temporary_folder.hpp"

namespace llama_test {

namespace {

namespace sk = shardkit;
using temporary_folder::Folder;
using Mesh = sk::DeviceMesh<sk::dynamic, sk::dynamic>;
const std::string golden = std::string(SHARDKIT_GOLDEN_DIR) + "/llama.safetensors";

constexpr std::size_t vocabulary = 19;
constexpr std::size_t width = 8;
constexpr std::size_t hidden = 12;
constexpr std::size_t heads = 2;
constexpr std::size_t head_width = width / heads;
constexpr std::size_t layers = 2;

struct Query : sk::Param<"self_attn.q_proj.weight", float, width, width>, sk::tp::Split<0> {};
struct Key : sk::Param<"self_attn.k_proj.weight", float, head_width, width> {};
struct Value : sk::Param<"self_attn.v_proj.weight", float, head_width, width> {};
struct Output : sk::Param<"self_attn.o_proj.weight", float, width, width>, sk::tp::Split<1> {};
struct Gate : sk::Param<"mlp.gate_proj.weight", float, hidden, width>, sk::tp::Split<0> {};
struct Up : sk::Param<"mlp.up_proj.weight", float, hidden, width>, sk::tp::Split<0> {};
struct Down : sk::Param<"mlp.down_proj.weight", float, width, hidden>, sk::tp::Split<1> {};
struct InputNorm : sk::Param<"input_layernorm.weight", float, width> {};
struct OutputNorm : sk::Param<"post_attention_layernorm.weight", float, width> {};
using Block = sk::Params<Query, Key, Value, Output, Gate, Up, Down, InputNorm, OutputNorm>;
struct Embedding : sk::Param<"embed_tokens.weight", float, vocabulary, width> {};
struct Norm : sk::Param<"norm.weight", float, width> {};
struct Head : sk::Param<"weight", float, vocabulary, width> {};

/// Each with the policy and mesh that it is given; "path.parameter" is what the file says.
struct Model {
    template <class P>
    using Group = sk::Sharded<P, sk::DynamicPolicy>;

    Model(sk::Rank& rank, const sk::DynamicPolicy& policy)
        : ends(rank, "model", {}, {policy}), head(rank, "lm_head", {}, {policy}) {
        for (std::size_t l = 0; l < layers; ++l) {
            blocks.emplace_back(rank, "model.layers." + std::to_string(l), sk::Shapes<Block>{},
                                typename Group<Block>::Options{policy});
        }
    }
    auto groups() { return sk::Model{ends, blocks, head}; }

    Group<sk::Params<Embedding, Norm>> ends;
    std::vector<Group<Block>> blocks;
    Group<sk::Params<Head>> head;
};

/// A trainer whose rotations take neighbours, as Meta's own code: [heads][pair][2] rows, where transformers has
/// [heads][2][pair].
sk::checkpoint::StoredAs pairs_side_by_side(std::string_view path, const sk::ParameterRecord& parameter) {
    sk::checkpoint::StoredAs stored = sk::checkpoint::stored_by_path(path, parameter);
    if (parameter.name == Query::name || parameter.name == Key::name) {
        const std::size_t rows = parameter.shape.extents[0];
        stored.extents = {rows / head_width, head_width / 2, 2, width};
        stored.order = {0, 2, 1, 3};
    }
    return stored;
}

}  // namespace

TEST_CASE("a Llama of transformers is opened by its own names on every mesh, and saved as it came") {
    const Folder folder;
    const sk::safetensors::File given(golden);
    REQUIRE(given.tensors().size() == 9 * layers + 3);
    std::size_t number = 0;
    for (const auto& [mesh, policy] : {std::pair(Mesh(1, 1), sk::DynamicPolicy(sk::NoShard{})),
                                       std::pair(Mesh(3, 1), sk::DynamicPolicy(sk::FullShard{})),
                                       std::pair(Mesh(1, 2), sk::DynamicPolicy(sk::ShardGradOp{})),
                                       std::pair(Mesh(2, 2), sk::DynamicPolicy(sk::FullShard{}))}) {
        const Mesh ranks = mesh;
        const sk::DynamicPolicy& chosen = policy;
        CAPTURE(number);
        const std::string run = folder.file(std::to_string(number++));
        REQUIRE_NOTHROW(sk::threads::run(ranks, [&](auto& rank) {
            Model model(rank, chosen);
            const auto report = sk::checkpoint::load_model(rank, golden, model.groups());
            if (report.tensors != 9 * layers + 3) { throw std::logic_error("tensors are missing"); }
            sk::checkpoint::save(rank, run, 1, sk::checkpoint::State{model.groups()});
        }));
        const sk::safetensors::File saved(run + "/step-00000001/model.safetensors");
        REQUIRE(saved.tensors().size() == given.tensors().size());
        for (const auto& tensor : given.tensors()) {
            CAPTURE(tensor.name);
            CHECK(saved.at(tensor.name).shape == tensor.shape);
            CHECK(saved.read<float>(tensor.name) == given.read<float>(tensor.name));
        }
        // Without this transformers does not open a file.
        REQUIRE(saved.metadata().size() == 1);
        CHECK(saved.metadata()[0] == std::pair<std::string, std::string>("format", "pt"));
    }
}

TEST_CASE("rotary heads whose pairs lie side by side are loaded from halves, and saved as halves") {
    const Folder folder;
    const sk::safetensors::File given(golden);
    const auto query = given.read<float>("model.layers.1.self_attn.q_proj.weight");
    const auto key = given.read<float>("model.layers.1.self_attn.k_proj.weight");
    std::vector<float> own_query(query.size());
    std::vector<float> own_key(key.size());
    sk::threads::run(Mesh(2, 2), [&](auto& rank) {
        Model model(rank, sk::DynamicPolicy(sk::FullShard{}));
        sk::checkpoint::load_model(rank, golden, model.groups(), {.names = pairs_side_by_side});
        std::vector<float> q(query.size());
        std::vector<float> k(key.size());
        model.blocks[1].read_full(Query{}, std::span(q));
        model.blocks[1].read_full(Key{}, std::span(k));
        if (rank.rank() == 0) {
            own_query = q;
            own_key = k;
        }
        sk::checkpoint::save(rank, folder.file("run"), 1, sk::checkpoint::State{model.groups()},
                             {.names = pairs_side_by_side});
    });
    for (std::size_t head = 0; head < heads; ++head) {
        for (std::size_t pair = 0; pair < head_width / 2; ++pair) {
            for (std::size_t half = 0; half < 2; ++half) {
                const std::size_t own = head * head_width + pair * 2 + half;
                const std::size_t theirs = head * head_width + half * (head_width / 2) + pair;
                for (std::size_t i = 0; i < width; ++i) {
                    CHECK(own_query[own * width + i] == query[theirs * width + i]);
                    if (head == 0) { CHECK(own_key[own * width + i] == key[theirs * width + i]); }
                }
            }
        }
    }
    CHECK(own_query != query);
    const sk::safetensors::File saved(folder.file("run/step-00000001/model.safetensors"));
    for (const auto& tensor : given.tensors()) {
        CAPTURE(tensor.name);
        CHECK(saved.read<float>(tensor.name) == given.read<float>(tensor.name));
    }
}

}  // namespace llama_test
