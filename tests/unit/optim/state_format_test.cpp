// SPDX-License-Identifier: Apache-2.0
// Optimizers whose states are bf16 or blocks of 8 bits: the same bits on every mesh, under every policy and after a
// resume elsewhere; what they cost; and where they are refused.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/checkpoint.hpp>
#include <shardkit/muon.hpp>
#include <shardkit/plan.hpp>
#include <shardkit/shardkit.hpp>

#include "renamed_in_step.hpp"
#include "temporary_folder.hpp"
#include "unit/thrown_message.hpp"

namespace state_format_test {

namespace sk = shardkit;
using temporary_folder::Folder;

// Sizes that divide nothing; the last block of each parameter is a part of one.
struct Weight : sk::Param<"weight", float, 67, 13> {};
struct Bias : sk::Param<"bias", float, 33> {};
struct One : sk::Param<"one", float, 1> {};
using Net = sk::Params<Weight, Bias, One>;
using Layer = sk::Sharded<Net, sk::DynamicPolicy>;

/// A model whose gradients are on data rank 0 alone: their sum has the same bits on any number of ranks.
template <class Optimizer>
struct Trainer {
    template <class Make>
    Trainer(sk::Rank& rank, const sk::DynamicPolicy& policy, const Make& make)
        : layer(rank, "layer", sk::Shapes<Net>{}, Layer::Options{policy}),
          model{layer},
          optimizer(make(model)),
          state(model, optimizer) {
        layer.initialize([](auto, auto, std::size_t i) { return 0.01 * static_cast<double>(i % 31) - 0.15; });
    }
    void step(std::size_t number) {
        sk::Accumulation accumulation{model};
        auto gradients = accumulation.gradients(layer);
        for (std::size_t p = 0; p < layer.parameters().size() && layer.rank().rank() == 0; ++p) {
            auto view = gradients.view(p);
            for (std::size_t i = 0; i < view.size(); ++i) {
                const double wave = std::sin(0.37 * static_cast<double>(i * (p + 1)) + static_cast<double>(number));
                view.data()[i] += static_cast<float>(wave * (i % 7 == 0 ? 1e-4 : 1e-2));
            }
        }
        accumulation.add(std::move(gradients));
        optimizer.step(sk::reduce(std::move(accumulation), sk::divide_by(1)));
    }
    std::uint64_t hash() {
        std::uint64_t hash = 14695981039346656037U;
        const auto window = layer.unshard();
        for (std::size_t p = 0; p < layer.parameters().size(); ++p) {
            for (const float value : window.view(p)) {
                hash = (hash ^ std::bit_cast<std::uint32_t>(value)) * 1099511628211U;
            }
        }
        return hash;
    }

    Layer layer;
    sk::Model model;
    Optimizer optimizer;
    sk::checkpoint::State state;
};

const std::vector<sk::DynamicPolicy>& policies() {
    static const std::vector<sk::DynamicPolicy> all{
        sk::DynamicPolicy(sk::NoShard{}), sk::DynamicPolicy(sk::FullShard{}), sk::DynamicPolicy(sk::ShardOptimizer{}),
        sk::DynamicPolicy(sk::ShardGradOp{})};
    return all;
}

/// Runs steps [first, last) on `ranks`, loads before and saves after where there is a folder.
template <class Optimizer, class Make>
std::uint64_t trained(std::size_t ranks, const sk::DynamicPolicy& policy, std::size_t first, std::size_t last,
                      const Make& make, const std::string& folder = {}) {
    std::uint64_t hash = 0;
    sk::threads::run(sk::DeviceMesh<sk::dynamic>{ranks}, [&](auto& rank) {
        Trainer<Optimizer> trainer(rank, policy, make);
        if (first > 0) { sk::checkpoint::load(rank, sk::checkpoint::latest(rank, folder)->path, trainer.state); }
        for (std::size_t s = first; s < last; ++s) { trainer.step(s); }
        if (!folder.empty()) { sk::checkpoint::save(rank, folder, last, trainer.state); }
        const std::uint64_t its = trainer.hash();
        if (rank.rank() == 0) { hash = its; }
    });
    return hash;
}

template <class Optimizer, class Make>
void check_everywhere(const Make& make) {
    constexpr std::size_t steps = 12;
    const std::uint64_t alone = trained<Optimizer>(1, sk::DynamicPolicy(sk::NoShard{}), 0, steps, make);
    for (const std::size_t ranks : std::vector<std::size_t>{1, 2, 3, 5}) {
        for (const sk::DynamicPolicy& policy : policies()) {
            CAPTURE(ranks);
            CHECK(trained<Optimizer>(ranks, policy, 0, steps, make) == alone);
        }
    }
    CHECK(trained<Optimizer>(4, sk::DynamicPolicy(sk::HybridShard<2>{}), 0, steps, make) == alone);
    // A resume on another mesh and under another policy goes on as if nothing had happened.
    const Folder folder;
    trained<Optimizer>(3, sk::DynamicPolicy(sk::FullShard{}), 0, 5, make, folder.path());
    trained<Optimizer>(2, sk::DynamicPolicy(sk::NoShard{}), 5, 8, make, folder.path());
    CHECK(trained<Optimizer>(4, sk::DynamicPolicy(sk::ShardOptimizer{}), 8, steps, make, folder.path()) == alone);
}

template <sk::StateFormat Format>
sk::AdamW adamw(const sk::Model& model) {
    return {model, sk::states_in<Format>, {.learning_rate = 0.01}};
}

TEST_CASE("states in bf16 give the same bits on every mesh and policy, and after a resume elsewhere") {
    check_everywhere<sk::AdamW>(adamw<sk::StateFormat::bf16>);
}

TEST_CASE("states in blocks of 8 bits give the same bits on every mesh and policy, and after a resume elsewhere") {
    check_everywhere<sk::AdamW>(adamw<sk::StateFormat::block8>);
}

TEST_CASE("states in bf16 and in blocks of 8 bits are refused for a master of fp64, with its group and the line") {
    sk::threads::run(sk::DeviceMesh<2>{}, [](auto& rank) {
        const auto refusal = [&](const auto& format, bool frozen = false) {
            sk::Sharded<Net, sk::FullShard> narrow(rank, "narrow");
            sk::Sharded<sk::TensorList<double>, sk::FullShard> wide(rank, "wide",
                                                                    {{"weight", {7, 3}, {.frozen = frozen}}});
            const sk::Model model{narrow, wide};
            sk::SourceLocation where;
            std::string message = thrown_message<std::invalid_argument>([&] {
                where = sk::SourceLocation::current();
                const sk::AdamW optimizer{model, format, {}, {}, where};
            });
            const std::string expected = text_at(
                "optimizer: 'wide' has a master of fp64, and states in bf16 or in "
                "blocks of 8 bits are those of updates in fp32; expected "
                "StateFormat::full",
                where);
            return message == expected ? "refused" : message;
        };
        CHECK(refusal(sk::states_in<sk::StateFormat::bf16>) == "refused");
        CHECK(refusal(sk::states_in<sk::StateFormat::block8>) == "refused");
        CHECK(refusal(sk::states_in<sk::StateFormat::full>) == "nothing was thrown");
        CHECK(refusal(sk::states_in<sk::StateFormat::bf16>, true) == "nothing was thrown");
    });
}

TEST_CASE("Lion's, SGD's and AMSGrad's states are stored likewise, on two meshes") {
    const auto check = [](auto made) {
        using Optimizer = decltype(made(std::declval<const sk::Model&>()));
        const std::uint64_t alone = trained<Optimizer>(1, sk::DynamicPolicy(sk::NoShard{}), 0, 5, made);
        CHECK(trained<Optimizer>(3, sk::DynamicPolicy(sk::FullShard{}), 0, 5, made) == alone);
    };
    check([](const sk::Model& model) { return sk::Lion{model, sk::states_in<sk::StateFormat::block8>}; });
    check([](const sk::Model& model) {
        return sk::SGD{model,
                       sk::states_in<sk::StateFormat::bf16>,
                       {.learning_rate = 0.1, .rule = sk::Momentum::nesterov, .momentum = 0.9}};
    });
    check([](const sk::Model& model) {
        return sk::SGD{model, sk::states_in<sk::StateFormat::block8>, {.learning_rate = 0.1}};  // no states at all
    });
    check([](const sk::Model& model) { return sk::AMSGrad{model, sk::states_in<sk::StateFormat::block8>}; });
}

struct Half : sk::Param<"half", sk::bf16, 67> {};

TEST_CASE("bf16 parameters follow their masters under SGD without states, whatever format those would have") {
    const auto moved = [](const auto& format) {
        std::vector<float> values;
        sk::threads::run(sk::DeviceMesh<2>{}, [&](auto& rank) {
            sk::Sharded<sk::Params<Half>, sk::FullShard> layer(rank, "layer");
            layer.initialize([](auto, auto, std::size_t) { return 1.0; });
            const sk::Model model{layer};
            sk::SGD optimizer{model, format, {.learning_rate = 0.25}};
            sk::Accumulation accumulation{model};
            auto gradients = accumulation.gradients(layer);
            for (sk::bf16& gradient : gradients.view(0)) { gradient = sk::bf16(1); }
            accumulation.add(std::move(gradients));
            optimizer.step(sk::reduce(std::move(accumulation), sk::sum));
            const auto window = layer.unshard();
            if (rank.rank() != 0) { return; }
            for (const sk::bf16 value : window.view(0)) { values.push_back(static_cast<float>(value)); }
        });
        return values;
    };
    const std::vector<float> expected(67, 0.5F);
    CHECK(moved(sk::states_in<sk::StateFormat::full>) == expected);
    CHECK(moved(sk::states_in<sk::StateFormat::bf16>) == expected);
    CHECK(moved(sk::states_in<sk::StateFormat::block8>) == expected);
}

TEST_CASE("states follow full ones: the parameters after 200 steps differ by a part of what they have moved") {
    const auto moved = [](auto made) {
        std::vector<double> values;
        sk::threads::run(sk::DeviceMesh<1>{}, [&](auto& rank) {
            using Optimizer = decltype(made(std::declval<const sk::Model&>()));
            Trainer<Optimizer> trainer(rank, sk::DynamicPolicy(sk::NoShard{}), made);
            for (std::size_t s = 0; s < 200; ++s) { trainer.step(s); }
            const auto window = trainer.layer.unshard();
            for (const float value : window.view(0)) { values.push_back(value); }
        });
        return values;
    };
    const std::vector<double> full = moved([](const sk::Model& m) { return adamw<sk::StateFormat::full>(m); });
    const auto distance = [&](const std::vector<double>& other) {
        double sum = 0;
        double all = 0;
        for (std::size_t i = 0; i < full.size(); ++i) {
            const double begin = 0.01 * static_cast<double>(i % 31) - 0.15;
            sum += (other[i] - full[i]) * (other[i] - full[i]);
            all += (full[i] - begin) * (full[i] - begin);
        }
        return std::sqrt(sum / all);
    };
    const double in_bf16 = distance(moved([](const sk::Model& m) { return adamw<sk::StateFormat::bf16>(m); }));
    const double in_8_bits = distance(moved([](const sk::Model& m) { return adamw<sk::StateFormat::block8>(m); }));
    CHECK(in_bf16 > 0);
    CHECK(in_bf16 < 0.02);
    CHECK(in_8_bits > in_bf16);
    CHECK(in_8_bits < 0.2);
}

TEST_CASE("a plan counts the bytes of the states: 2 of an element in bf16, 1 and an eighth in blocks") {
    const auto group = sk::describe_group<Net, sk::FullShard>("layer", sk::Shapes<Net>{}, sk::DeviceMesh<4>{}.grid());
    const auto bytes = [&](sk::StateFormat format) {
        return sk::planner::plan_memory(std::span(&group, 1), {.optimizer_states = {2, format}}).optimizer.value;
    };
    CHECK(bytes(sk::StateFormat::full) == 8 * group.shard_numel);
    CHECK(bytes(sk::StateFormat::bf16) == 4 * group.shard_numel);
    CHECK(bytes(sk::StateFormat::block8) == 2 * group.shard_numel + 2 * 4 * (group.shard_numel / 32));
}

template <class T>
std::vector<T> bytes_of(const std::string& path, const std::string& name) {
    const sk::safetensors::File header(path);
    std::ifstream file(path, std::ios::binary);
    std::uint64_t length = 0;
    file.read(reinterpret_cast<char*>(&length), sizeof length);
    for (const sk::safetensors::Tensor& tensor : header.tensors()) {
        if (tensor.name != name) { continue; }
        std::vector<T> values(tensor.bytes.size() / sizeof(T));
        file.seekg(static_cast<std::streamoff>(sizeof length + length + tensor.bytes.begin));
        file.read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(values.size() * sizeof(T)));
        return values;
    }
    FAIL("no tensor ", name, " in ", path);
    return {};
}
/// The numbers that a step's codes and scales stand for, by the formulas of docs/precision.md in fp64.
std::vector<double> decoded(const std::string& step) {
    std::vector<double> all;
    for (const std::string state : {"exp_avg", "exp_avg_sq"}) {
        for (const std::string parameter : {"layer.weight", "layer.bias", "layer.one"}) {
            const auto codes = bytes_of<std::uint8_t>(step + "/state/" + state + ".safetensors", parameter);
            const auto scales = bytes_of<float>(step + "/state/" + state + ".powers.safetensors", parameter);
            for (std::size_t i = 0; i < codes.size(); ++i) {
                // From 2 on, 16 or 32 steps between powers of two; 2 stands for 0.
                const int steps = state == "exp_avg" ? 16 : 32;
                const int magnitude = state == "exp_avg" ? codes[i] % 128 : codes[i];
                const double number =
                    std::ldexp(1.0 + (magnitude % steps) / double(steps), magnitude / steps + 1) - 2;
                all.push_back((magnitude == codes[i] ? number : -number) * static_cast<double>(scales[i / 32]));
            }
        }
    }
    return all;
}
std::string only_step(const Folder& folder) {
    std::string path;
    sk::threads::run(sk::DeviceMesh<1>{},
                     [&](auto& rank) { path = sk::checkpoint::latest(rank, folder.path())->path; });
    return path;
}

TEST_CASE("a checkpoint of states in blocks loads into full ones, and back without a change") {
    using sk::StateFormat;
    const auto in_blocks = adamw<StateFormat::block8>;
    const auto in_full = adamw<StateFormat::full>;
    const sk::DynamicPolicy whole(sk::NoShard{});
    const sk::DynamicPolicy shards(sk::FullShard{});
    const Folder folder;
    trained<sk::AdamW>(2, shards, 0, 3, in_blocks, folder.path());
    const std::string step = only_step(folder);
    const std::vector<double> expected = decoded(step);
    for (const std::size_t ranks : std::vector<std::size_t>{1, 3}) {
        CAPTURE(ranks);
        std::vector<float> loaded(expected.size());
        const Folder there;
        sk::threads::run(sk::DeviceMesh<sk::dynamic>{ranks}, [&](auto& rank) {
            Trainer<sk::AdamW> trainer(rank, ranks == 1 ? whole : shards, in_full);
            sk::checkpoint::load(rank, step, trainer.state);
            std::size_t at = 0;
            for (const std::string_view kind : {"exp_avg", "exp_avg_sq"}) {
                for (const sk::ParameterRecord& parameter : trainer.layer.parameters()) {
                    for (const sk::ShardInfo& shard : trainer.optimizer.shards()) {
                        if (shard.kind != kind || shard.parameter != parameter.name) { continue; }
                        std::copy_n(static_cast<const float*>(shard.data), shard.range.size(),
                                    loaded.begin() + static_cast<std::ptrdiff_t>(at + shard.range.begin));
                    }
                    at += parameter.shape.numel();
                }
            }
            sk::checkpoint::save(rank, there.path(), 3, trainer.state);
        });
        for (std::size_t i = 0; i < expected.size(); ++i) {
            if (std::abs(static_cast<double>(loaded[i]) - expected[i]) > 4e-7 * std::abs(expected[i])) {
                FAIL("element ", i, ": ", loaded[i], " and not ", expected[i]);
            }
        }
        // The full states' file gives the codes back: the run goes on as the one that never left its blocks.
        const std::uint64_t there_and_back = trained<sk::AdamW>(5, shards, 3, 7, in_blocks, there.path());
        const Folder same;
        std::filesystem::copy(folder.path(), same.path(), std::filesystem::copy_options::recursive);
        CHECK(there_and_back == trained<sk::AdamW>(1, whole, 3, 7, in_blocks, same.path()));
    }
    // Into bf16 and out of full ones: one result on every mesh.
    const auto moved = [&](std::size_t ranks, const sk::DynamicPolicy& policy, const auto& make, const Folder& from) {
        using Optimizer = decltype(make(std::declval<const sk::Model&>()));
        const Folder copy;
        std::filesystem::copy(from.path(), copy.path(), std::filesystem::copy_options::recursive);
        return trained<Optimizer>(ranks, policy, 3, 5, make, copy.path());
    };
    CHECK(moved(1, whole, adamw<StateFormat::bf16>, folder) == moved(3, shards, adamw<StateFormat::bf16>, folder));
    const Folder full;
    trained<sk::AdamW>(2, shards, 0, 3, in_full, full.path());
    CHECK(moved(1, whole, in_blocks, full) == moved(3, shards, in_blocks, full));
    // Each number becomes the nearest of its block.
    const Folder nearest;
    sk::threads::run(sk::DeviceMesh<3>{}, [&](auto& rank) {
        Trainer<sk::AdamW> trainer(rank, shards, in_blocks);
        sk::checkpoint::load(rank, sk::checkpoint::latest(rank, full.path())->path, trainer.state);
        sk::checkpoint::save(rank, nearest.path(), 3, trainer.state);
    });
    const std::vector<double> coded = decoded(only_step(nearest));
    std::size_t at = 0;
    for (const std::string state : {"exp_avg", "exp_avg_sq"}) {
        for (const std::string parameter : {"layer.weight", "layer.bias", "layer.one"}) {
            const auto given = bytes_of<float>(only_step(full) + "/state/" + state + ".safetensors", parameter);
            for (std::size_t i = 0; i < given.size(); ++i, ++at) {
                const std::size_t block = i / 32 * 32;
                double largest = 0;
                for (std::size_t k = block; k < std::min(block + 32, given.size()); ++k) {
                    largest = std::max(largest, std::abs(static_cast<double>(given[k])));
                }
                double scale = 0x1p-103;
                while (494 * scale < largest) { scale *= 2; }
                const double number = given[i];
                const double half = std::exp2(std::floor(std::log2(std::abs(number) / scale + 2))) * scale /
                                    (state == "exp_avg" ? 32 : 64);
                const bool lifted = state == "exp_avg_sq" && number < half;
                if (std::abs(coded[at] - number) > half * (lifted ? 2 : 1 + 1e-5)) {
                    FAIL(state, " of ", parameter, ", element ", i, ": ", coded[at], " for ", number, " of ", scale);
                }
            }
        }
    }
    CHECK(moved(1, whole, adamw<StateFormat::bf16>, full) == moved(2, shards, adamw<StateFormat::bf16>, full));
}

TEST_CASE("scales have the names of their codes, whatever the path of the group that loads them") {
    using sk::StateFormat;
    using Names = sk::checkpoint::TensorNames;
    const Names called = [](std::string_view, const sk::ParameterRecord& p) {
        return p.name == "weight"
                   ? sk::checkpoint::stored_transposed("W", p.shape)
                   : (p.name == "one" ? sk::checkpoint::not_stored() : sk::checkpoint::stored("b", p.shape));
    };
    const Names in_parts = [](std::string_view path, const sk::ParameterRecord& p) {
        return p.name == "weight" ? sk::checkpoint::stored_rows({{"q", 60}, {"k", 7}}, p.shape)
                                  : sk::checkpoint::stored_by_path(path, p);
    };
    /// Saves after three steps of a group "layer" as `save_names` say, and loads into a group `path`.
    const auto moved = [&](const Names& save_names, const char* path, const Names& load_names, auto format) {
        const Folder folder;
        std::vector<float> moments(std::size_t{67} * 13);
        sk::threads::run(sk::DeviceMesh<2>{}, [&](auto& rank) {
            Trainer<sk::AdamW> trainer(rank, sk::DynamicPolicy(sk::FullShard{}), adamw<StateFormat::block8>);
            for (std::size_t s = 0; s < 3; ++s) { trainer.step(s); }
            sk::checkpoint::save(rank, folder.path(), 3, trainer.state, {.names = save_names});
            Layer other(rank, path, sk::Shapes<Net>{}, Layer::Options{sk::DynamicPolicy(sk::FullShard{})});
            sk::Model model{other};
            sk::AdamW optimizer{model, format};
            sk::checkpoint::load(rank, sk::checkpoint::latest(rank, folder.path())->path,
                                 sk::checkpoint::State{model, optimizer}, {.names = load_names, .subset = true});
            for (const sk::ShardInfo& shard : optimizer.shards()) {
                if (shard.kind != "exp_avg" || shard.parameter != "weight") { continue; }
                for (std::size_t i = 0; i < shard.range.size(); ++i) {
                    moments[shard.range.begin + i] = shard.type == sk::ElementType::fp32
                                                         ? static_cast<const float*>(shard.data)[i]
                                                         : static_cast<const std::uint8_t*>(shard.data)[i];
                }
            }
        });
        return moments;
    };
    const auto check_equal = [&](auto format) {
        const std::vector<float> plain =
            moved(sk::checkpoint::stored_by_path, "layer", sk::checkpoint::stored_by_path, format);
        CHECK(std::count(plain.begin(), plain.end(), plain.front()) < 100);
        CHECK(moved(called, "layer", called, format) == plain);
        CHECK(moved(called, "net", called, format) == plain);
        CHECK(moved(in_parts, "layer", in_parts, format) == plain);
        CHECK(moved(in_parts, "net", in_parts, format) == plain);
    };
    check_equal(sk::states_in<StateFormat::block8>);
    check_equal(sk::states_in<StateFormat::full>);
}

TEST_CASE("codes of roots, as they were stored before, are refused by name") {
    using sk::StateFormat;
    const sk::DynamicPolicy shards(sk::FullShard{});
    const Folder folder;
    trained<sk::AdamW>(2, shards, 0, 3, adamw<StateFormat::block8>, folder.path());
    renamed_in_step::rename(only_step(folder), ".powers", ".scales");
    const auto message = [&](const auto& make) {
        using Optimizer = decltype(make(std::declval<const sk::Model&>()));
        return thrown_message<sk::FileError>([&] { trained<Optimizer>(3, shards, 3, 4, make, folder.path()); });
    };
    const std::string in_blocks = message(adamw<StateFormat::block8>);
    const std::string in_full = message(adamw<StateFormat::full>);
    CHECK(in_blocks.find("exp_avg.powers of layer.weight") != std::string::npos);
    CHECK(in_full.find("exp_avg.powers of layer.weight") != std::string::npos);
    MESSAGE(in_blocks);
}

TEST_CASE("codes are refused by a group whose memory has no blocks") {
    using sk::StateFormat;
    const Folder folder;
    struct Odd : sk::Param<"odd", float, 5> {};
    using Pair = sk::Params<Odd, Bias>;
    const auto with = [&](sk::Packing packing, auto format, const auto& use) {
        sk::threads::run(sk::DeviceMesh<2>{}, [&](auto& rank) {
            using Of = sk::Sharded<Pair, sk::FullShard>;
            Of layer{rank, "layer", sk::Shapes<Pair>{}, typename Of::Options{.packing = packing}};
            sk::Model model{layer};
            sk::AdamW optimizer{model, format};
            use(rank, sk::checkpoint::State{model, optimizer});
        });
    };
    with(sk::Packing::aligned, sk::states_in<StateFormat::block8>,
         [&](auto& rank, const auto& state) { sk::checkpoint::save(rank, folder.path(), 3, state); });
    const std::string message = thrown_message<std::invalid_argument>([&] {
        with(sk::Packing::packed, sk::states_in<StateFormat::full>,
             [&](auto& rank, const auto& state) { sk::checkpoint::load(rank, only_step(folder), state); });
    });
    CHECK(message.find("'layer.bias' begins at element 5 of its group's memory, which Packing::aligned avoids") !=
          std::string::npos);
}

TEST_CASE("blocks are refused where they would depend on the mesh") {
    struct Rows : sk::Param<"rows", float, 6, 40>, sk::tp::Split<1> {};
    struct Columns : sk::Param<"columns", float, 8, 40>, sk::tp::Split<0> {};
    struct Both : sk::Param<"both", float, 6, 128>, sk::tp::Split<1> {};
    const auto made = [](auto group, sk::Packing packing) {
        return thrown_message<std::invalid_argument>([&] {
            sk::threads::run(sk::DeviceMesh<2, 2>{}, [&](auto& rank) {
                using Of = sk::Sharded<decltype(group), sk::FullShard>;
                Of layer{rank, "layer", sk::Shapes<decltype(group)>{}, typename Of::Options{.packing = packing}};
                sk::Model model{layer};
                sk::AdamW optimizer{model, sk::states_in<sk::StateFormat::block8>};
            });
        });
    };
    CHECK(made(Rows{}, sk::Packing::aligned).find("'layer.rows' is split over tp into rows of 20 elements") !=
          std::string::npos);
    CHECK(made(Columns{}, sk::Packing::aligned) == "nothing was thrown");  // 160 elements in one piece
    CHECK(made(Both{}, sk::Packing::aligned) == "nothing was thrown");
    CHECK(made(sk::Params<Bias, Columns>{}, sk::Packing::packed).find("Packing::aligned avoids") !=
          std::string::npos);
}

TEST_CASE("shards() lists the scales of blocks beside their codes, which reach their largest number") {
    const sk::TensorList<float> tensors{{"wide", {3, 64}}, {"odd", {45}}, {"still", {40}, {.frozen = true}}};
    const auto gradient = [](std::size_t p, std::size_t i) {
        return static_cast<float>(static_cast<double>((i * 7 + p) % 23) / 16 - 0.7);
    };
    for (const sk::DynamicPolicy& policy : policies()) {
        std::map<std::string, std::vector<float>> scales;
        std::map<std::string, std::string> shapes;
        std::mutex mutex;
        sk::threads::run(sk::DeviceMesh<3>{}, [&](auto& rank) {
            sk::Sharded<sk::TensorList<float>, sk::DynamicPolicy> layer{rank, "layer", tensors, {policy}};
            layer.initialize([](auto, auto, auto) { return 0.5; });
            sk::Model model{layer};
            sk::AdamW optimizer{model, sk::states_in<sk::StateFormat::block8>, {.beta1 = 0.5}};
            sk::Accumulation accumulation{model};
            auto handle = accumulation.gradients(layer);
            for (const std::size_t p : {0U, 1U}) {
                const auto view = handle.view(p);
                for (std::size_t i = 0; i < view.size(); ++i) { view.data()[i] += gradient(p, i); }
            }
            accumulation.add(std::move(handle));
            optimizer.step(std::move(accumulation), {.divisor = sk::mean});
            const std::lock_guard lock(mutex);
            std::size_t codes = 0;
            std::size_t blocks = 0;
            for (const sk::ShardInfo& info : optimizer.shards()) {
                CHECK(info.parameter != "still");
                if (info.kind == "exp_avg") { codes += info.range.size(); }
                if (info.kind != "exp_avg scales") { continue; }
                CHECK(info.type == sk::ElementType::fp32);
                blocks += info.range.size();
                shapes[info.parameter] = info.shape.describe();
                auto& all = scales[info.parameter];
                all.resize(info.shape.numel());
                for (std::size_t i = 0; i < info.range.size(); ++i) {
                    all[info.range.begin + i] = static_cast<const float*>(info.data)[i];
                }
            }
            CHECK(blocks >= codes / 32);
            CHECK(blocks <= codes / 32 + 1);
        });
        CHECK(shapes["wide"] == "[3, 2]");
        CHECK(shapes["odd"] == "[2]");
        const auto largest = [&](std::size_t p, std::size_t numel) {
            std::vector<float> expected((numel + 31) / 32);
            for (std::size_t i = 0; i < numel; ++i) {
                expected[i / 32] = std::max(expected[i / 32], std::fabs(gradient(p, i)) / 2);
            }
            for (float& number : expected) {
                float scale = 1;
                while (494 * scale > 2 * number) { scale /= 2; }
                number = 494 * scale < number ? 2 * scale : scale;
            }
            return expected;
        };
        const auto check = [&](const std::vector<float>& given, const std::vector<float>& expected) {
            REQUIRE(given.size() == expected.size());
            for (std::size_t b = 0; b < given.size(); ++b) { CHECK(given[b] == expected[b]); }
        };
        check(scales["wide"], largest(0, 192));
        check(scales["odd"], largest(1, 45));
    }
}

namespace {

/// The optimizers of one group's two parameters: one of both, or one of each in either order.
struct Formats {
    sk::StateFormat of_weight, of_bias;
    enum class By { one, weight_first, bias_first } by;
};
std::string described(const Formats& formats) {
    const auto name = [](sk::StateFormat format) {
        return format == sk::StateFormat::full ? "full" : (format == sk::StateFormat::bf16 ? "bf16" : "block8");
    };
    const char* const by[] = {"one optimizer", "the weight's first", "the bias's first"};
    return std::string(name(formats.of_weight)) + ", " + name(formats.of_bias) + ": " +
           by[static_cast<std::size_t>(formats.by)];
}
std::vector<Formats> all_formats(bool in_both_orders) {
    using enum sk::StateFormat;
    std::vector<Formats> all;
    for (const auto weight : {full, bf16, block8}) {
        all.push_back({weight, weight, Formats::By::one});
        for (const auto bias : {full, bf16, block8}) {
            all.push_back({weight, bias, Formats::By::weight_first});
            if (in_both_orders) { all.push_back({weight, bias, Formats::By::bias_first}); }
        }
    }
    return all;
}

struct Wide : sk::Param<"weight", float, 9, 7> {};
struct Short : sk::Param<"bias", float, 7> {};

/// AdamW with one gradient throughout: it moves every element by its rate in each step, but for what codes round.
struct Mixed {
    using Layer = sk::Sharded<sk::Params<Wide, Short>, sk::FullShard>;

    Mixed(sk::Rank& rank, const Formats& formats) : layer(rank, "layer"), model(layer) {
        if (formats.by == Formats::By::one) {
            parts.push_back(made(formats.of_weight, {}));
        } else {
            const auto of = [&](std::string_view others, sk::StateFormat format) {
                parts.push_back(made(format, {{.matches = [others](auto, auto name) { return name == others; },
                                               .updated_by = sk::UpdatedBy::another}}));
            };
            const bool weight_first = formats.by == Formats::By::weight_first;
            if (weight_first) { of("bias", formats.of_weight); }
            of("weight", formats.of_bias);
            if (!weight_first) { of("bias", formats.of_weight); }
            both = std::make_unique<sk::CombinedOptimizer>(
                model, std::vector<std::reference_wrapper<sk::Optimizer>>{*parts[0], *parts[1]});
        }
    }
    std::unique_ptr<sk::Optimizer> made(sk::StateFormat format, const std::vector<sk::ParamGroup>& groups) {
        const sk::AdamWOptions options{
            .learning_rate = 0.25, .beta1 = 0.9, .beta2 = 0.75, .epsilon = 1e-30, .weight_decay = 0};
        using enum sk::StateFormat;
        switch (format) {
            case full:
                return std::make_unique<sk::AdamW>(model, sk::states_in<full>, options, groups);
            case bf16:
                return std::make_unique<sk::AdamW>(model, sk::states_in<bf16>, options, groups);
            default:
                return std::make_unique<sk::AdamW>(model, sk::states_in<block8>, options, groups);
        }
    }
    sk::Optimizer& optimizer() { return both ? *both : *parts.front(); }
    void step() {
        sk::Accumulation accumulation{model};
        auto gradients = accumulation.gradients(layer);
        for (float& g : gradients[Wide{}]) { g = 1; }
        for (float& g : gradients[Short{}]) { g = 2; }
        accumulation.add(std::move(gradients));
        optimizer().step(std::move(accumulation));
    }
    bool all_are(float value) {
        const auto window = layer.unshard();
        const auto are = [&](std::span<const float> values) {
            return std::all_of(values.begin(), values.end(),
                               [&](float each) { return std::abs(each - value) < 0.02F; });
        };
        return are(window[Wide{}]) && are(window[Short{}]);
    }

    Layer layer;
    sk::Model model;
    std::vector<std::unique_ptr<sk::Optimizer>> parts;
    std::unique_ptr<sk::CombinedOptimizer> both;
};

}  // namespace

TEST_CASE(
    "each parameter's states are loaded in its own format, whatever format they and its neighbours' are saved in") {
    const Folder folder;
    std::size_t cases = 0;
    sk::threads::run(sk::DeviceMesh<2>{}, [&](auto& rank) {
        std::uint64_t step = 0;
        for (const Formats& saved : all_formats(false)) {
            Mixed first(rank, saved);
            first.step();
            const auto made = sk::checkpoint::save(rank, folder.path(), ++step,
                                                   sk::checkpoint::State{first.model, first.optimizer()});
            for (const Formats& loaded : all_formats(true)) {
                INFO(described(saved), ", loaded into ", described(loaded));
                Mixed second(rank, loaded);
                REQUIRE_NOTHROW(
                    sk::checkpoint::load(rank, made.path, sk::checkpoint::State{second.model, second.optimizer()}));
                second.step();
                CHECK(second.all_are(-0.5F));
                if (rank.rank() == 0) { ++cases; }
            }
        }
    });
    CHECK(cases == 12 * 21);
}

}  // namespace state_format_test
