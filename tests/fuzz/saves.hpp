// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <shardkit/backend/self/run.hpp>
#include <shardkit/backend/threads/run.hpp>
#include <shardkit/checkpoint.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/param/tensor_list.hpp>
#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/sharded/sharded.hpp>
#include <shardkit/step/accumulation.hpp>
#include <shardkit/step/loss_scale.hpp>
#include <shardkit/step/reduce.hpp>

#include "files_in_cache.hpp"
#include "named_states.hpp"
#include "temporary_folder.hpp"

/// Random states as a user can make them, saved and loaded again: names, texts, states, shapes, orders and options of
/// any kind. What is committed loads, with the same values, into groups in another order on another mesh; what is
/// refused has removed nothing, and left nothing.
namespace saves {

namespace sk = shardkit;
namespace fs = std::filesystem;

/// What a case gives to the library.
struct Case {
    struct Tensor {
        std::string name;
        std::vector<std::size_t> extents;
        bool frozen = false;
        sk::checkpoint::StoredAs stored;
    };
    struct Group {
        std::string path;
        std::vector<Tensor> tensors;
    };
    std::vector<Group> groups;
    std::string states[2];
    bool own_names = false;
    std::vector<std::pair<std::string, std::vector<std::uint8_t>>> blobs;
    sk::checkpoint::SaveOptions options;
    std::size_t ranks[2] = {1, 1};  // that save, that load
    sk::DynamicPolicy policies[2] = {sk::DynamicPolicy(sk::NoShard{}), sk::DynamicPolicy(sk::NoShard{})};

    /// As the user's function says it.
    sk::checkpoint::TensorNames names() const {
        if (!own_names) { return sk::checkpoint::stored_by_path; }
        return [this](std::string_view path, const sk::ParameterRecord& parameter) {
            for (const Group& group : groups) {
                for (const Tensor& tensor : group.tensors) {
                    if (group.path == path && tensor.name == parameter.name) { return tensor.stored; }
                }
            }
            throw std::logic_error("names: a parameter that no group has");
        };
    }
};

class Maker {
  public:
    explicit Maker(std::uint64_t seed) : random_(seed) {}

    Case make() {
        Case made;
        // Most cases have one kind of thing that is odd: of several the first one alone would be met.
        odd_ = below(8);
        for (std::size_t g = 1 + below(3); g > 0; --g) {
            Case::Group& group = made.groups.emplace_back();
            group.path = odd_ == 0 ? text() : "group" + std::to_string(g);
            for (std::size_t t = 1 + below(3); t > 0; --t) { add_tensor(group, t); }
        }
        made.own_names = odd_ == 2 || odd_ == 3 || below(4) == 0;
        for (std::size_t s = 0; s < 2; ++s) {
            made.states[s] = odd_ == 4 ? (below(2) == 0 ? file_name() : text()) : s == 0 ? "first" : "second";
        }
        for (std::size_t b = below(3); b > 0; --b) {
            made.blobs.emplace_back(odd_ == 5 ? text() : "blob" + std::to_string(b),
                                    std::vector<std::uint8_t>(below(4) * below(2000), std::uint8_t(below(256))));
        }
        for (std::size_t s = below(4); s > 0; --s) {
            made.options.strings.emplace_back(odd_ == 6 ? text() : "key" + std::to_string(s),
                                              odd_ == 6 ? text() : "a text");
        }
        made.options.max_file_bytes = below(2) == 0 ? below(200) : 5'000'000'000;
        made.options.staging = below(4) == 0 ? sk::checkpoint::Staging::copy : sk::checkpoint::Staging::none;
        const sk::DynamicPolicy policies[] = {sk::DynamicPolicy(sk::NoShard{}), sk::DynamicPolicy(sk::FullShard{}),
                                              sk::DynamicPolicy(sk::ShardGradOp{})};
        for (std::size_t r = 0; r < 2; ++r) {
            made.ranks[r] = 1 + below(8) / 7;  // threads take most of the time
            made.policies[r] = policies[below(3)];
        }
        return made;
    }

    std::size_t below(std::size_t end) { return static_cast<std::size_t>(random_() % end); }

  private:
    void add_tensor(Case::Group& group, std::size_t number) {
        Case::Tensor& tensor = group.tensors.emplace_back();
        tensor.name = odd_ == 1 ? text() : "tensor" + std::to_string(number);
        for (std::size_t d = below(4); d > 0; --d) { tensor.extents.push_back(1 + below(5)); }
        tensor.frozen = below(6) == 0;
        sk::TensorShape shape;
        for (const std::size_t extent : tensor.extents) { shape.extents[shape.rank++] = extent; }
        const std::string name = odd_ == 2 ? text() : group.path + "/" + tensor.name;
        tensor.stored = sk::checkpoint::stored(name, shape);
        const std::size_t form = below(4);
        if (form == 1 && shape.rank == 2) { tensor.stored = sk::checkpoint::stored_transposed(name, shape); }
        if (form == 2 && shape.rank > 0 && shape.extents[0] > 1) {
            const std::size_t rows = 1 + below(shape.extents[0] - 1);
            tensor.stored =
                sk::checkpoint::stored_rows({{name + "1", rows}, {name + "2", shape.extents[0] - rows}}, shape);
        }
        if (odd_ != 3) { return; }
        // Forms that cannot be, some of which look as if they could.
        std::vector<std::size_t>& extents = tensor.stored.extents;
        if (below(3) == 0) { tensor.stored.shape.push_back(below(3)); }
        if (below(3) == 0) {
            for (std::size_t d = below(10); d > 0; --d) {
                extents.push_back(below(3) == 0 ? std::size_t{1} << below(64) : below(6));
                tensor.stored.order.push_back(below(3) == 0 ? below(9) : extents.size() - 1);
            }
        }
        if (below(3) == 0) { extents = {(std::size_t{1} << 62U) + shape.numel() / 4, 4}; }
        if (below(4) == 0) { tensor.stored.parts.push_back({text(), {below(4)}}); }
    }
    /// Of anything: bytes, UTF-8, paths, names that mean something.
    std::string text() {
        static const std::string known[] = {"",
                                            "a",
                                            "a",
                                            "a.b",
                                            "\xc3\xa9",
                                            "\xf0\x9f\x98\x80",
                                            "\xff",
                                            "a\xc3",
                                            "__metadata__",
                                            "x/y",
                                            ".",
                                            "..",
                                            "../../escape",
                                            "/escape",
                                            "\"\\\n\t\x7f",
                                            std::string("a\0b", 3),
                                            std::string(300, 'n'),
                                            "alias:a",
                                            "shardkit.kind",
                                            "format",
                                            "param_group_1",
                                            "steps",
                                            "loss_scale.value",
                                            "blob.a"};
        if (below(3) != 0) { return known[below(std::size(known))]; }
        std::string made(below(6), '\0');
        for (char& c : made) { c = static_cast<char>(below(256)); }
        return made;
    }
    std::string file_name() {
        static const std::string known[] = {"model",
                                            "master",
                                            "scalars",
                                            "parameter",
                                            "moving-avg-of-grad",
                                            "a-00001-of-00002",
                                            "a-1-of-2",
                                            "-of-",
                                            "manifest.json",
                                            "exp avg",
                                            "model.safetensors.index.json",
                                            "uncommitted.shardkit",
                                            "first",
                                            std::string(200, 's'),
                                            std::string(201, 's'),
                                            std::string(255, 's')};
        return known[below(std::size(known))];
    }

    std::mt19937_64 random_;
    std::size_t odd_ = 0;
};

struct Training {
    using Layer = sk::Sharded<sk::TensorList<float>, sk::DynamicPolicy>;

    /// @param from  the number of the group that comes first
    Training(sk::Rank& rank, Case& of, std::size_t side, std::size_t from)
        : layers(make(rank, of, side, from)),
          optimizer(named_states::optimizer(sk::Model{layers}, of.states[0], of.states[1])),
          loss_scale(rank, {.initial = 64}),
          state(sk::Model{layers}, optimizer, loss_scale) {
        blobs.resize(of.blobs.size());
        for (std::size_t b = 0; b < blobs.size(); ++b) { state.blob(of.blobs[b].first, blobs[b]); }
    }
    /// Values that all differ, and a step.
    void begin(const Case& of) {
        for (std::size_t b = 0; b < blobs.size(); ++b) { blobs[b] = of.blobs[b].second; }
        double next = 1;
        for (Layer& layer : layers) {
            for (std::size_t p = 0; p < layer.parameters().size(); ++p) {
                std::vector<float> values(layer.parameters()[p].shape.numel());
                for (float& value : values) { value = static_cast<float>(next++); }
                layer.load(p, values);
            }
        }
        sk::Model model{layers};
        sk::Accumulation accumulation{model};
        for (Layer& layer : layers) {
            if (std::ranges::all_of(layer.parameters(), [](const auto& p) { return p.frozen; })) { continue; }
            auto gradients = accumulation.gradients(layer);
            for (std::size_t p = 0; p < layer.parameters().size(); ++p) {
                auto view = gradients.view(p);
                for (std::size_t i = 0; i < view.size(); ++i) {
                    view.data()[i] = static_cast<float>(64 * (i % 5 + p + 1));
                }
            }
            accumulation.add(std::move(gradients));
        }
        optimizer.step(sk::reduce(std::move(accumulation), sk::mean, loss_scale));
    }
    /// All of it that this rank holds, by what it is.
    std::map<std::tuple<std::string, std::string, std::string, std::size_t>, float> values() {
        std::map<std::tuple<std::string, std::string, std::string, std::size_t>, float> all;
        // A state may be called as what is none.
        const auto add = [&](const std::vector<sk::ShardInfo>& shards, const std::string& before) {
            for (const sk::ShardInfo& info : shards) {
                if (!info.current) { continue; }
                for (std::size_t i = 0; i < info.range.size(); ++i) {
                    float value = 0;
                    std::memcpy(&value, static_cast<const float*>(info.data) + i, sizeof value);
                    all[{info.path, info.parameter, before + std::string(info.kind), info.range.begin + i}] = value;
                }
            }
        };
        for (Layer& layer : layers) { add(layer.shards(), "group's "); }
        // Of frozen parameters the optimizer has room, and nothing that anyone reads.
        auto states = optimizer.shards();
        std::erase_if(states, [&](const sk::ShardInfo& info) {
            for (Layer& layer : layers) {
                for (const auto& parameter : layer.parameters()) {
                    if (layer.path() == info.path && parameter.name == info.parameter) { return parameter.frozen; }
                }
            }
            return false;
        });
        add(states, "optimizer's ");
        return all;
    }

    static std::vector<Layer> make(sk::Rank& rank, const Case& of, std::size_t side, std::size_t from) {
        std::vector<Layer> layers;
        for (std::size_t g = 0; g < of.groups.size(); ++g) {
            const Case::Group& group = of.groups[(from + g) % of.groups.size()];
            std::vector<sk::NamedTensor> tensors;
            for (const Case::Tensor& tensor : group.tensors) {
                sk::ParameterAttributes attributes;
                attributes.frozen = tensor.frozen;
                tensors.emplace_back(tensor.name, tensor.extents, attributes);
            }
            layers.emplace_back(rank, group.path, sk::TensorList<float>(tensors),
                                typename Layer::Options{of.policies[side]});
        }
        return layers;
    }

    std::vector<Layer> layers;
    decltype(named_states::optimizer(sk::Model{std::declval<std::vector<Layer>&>()}, "", "")) optimizer;
    sk::LossScale loss_scale;
    std::vector<std::vector<std::uint8_t>> blobs;
    sk::checkpoint::State state;
};

/// f(rank) on so many ranks.
template <class F>
void on_ranks(std::size_t ranks, const F& f) {
    if (ranks == 1) {
        sk::self::run(sk::DeviceMesh<1>{}, f);
    } else {
        sk::threads::run(sk::DeviceMesh{ranks}, f);
    }
}

enum class Outcome : std::uint8_t { no_state, refused, loaded };

/// One case in a folder of its own.
/// @throws std::logic_error where a promise is not kept, and whatever a load of what was committed throws
inline Outcome run(std::uint64_t seed, const std::string& folder) {
    using Values = decltype(std::declval<Training&>().values());
    Maker maker(seed);
    Case given = maker.make();
    files_in_cache::InCache files;
    given.options.names = given.names();
    given.options.files = &files;
    const auto require = [&](bool holds, const char* what) {
        if (!holds) { throw std::logic_error("seed " + std::to_string(seed) + ": " + what); }
    };
    const std::string run = folder + "/around/run";
    fs::create_directories(run + "/step-00000001");
    const sk::checkpoint::SaveOptions old{.replace = true, .files = &files};
    sk::self::run(sk::DeviceMesh<1>{}, [&](auto& rank) {
        sk::Sharded<sk::TensorList<float>, sk::NoShard> layer(rank, "old", sk::TensorList<float>{{"t", {2}}});
        const sk::Model model{layer};
        fs::remove_all(run + "/step-00000001");
        sk::checkpoint::save(rank, run, 1, sk::checkpoint::State{model}, old);
    });
    const auto before = temporary_folder::contents(folder);
    std::vector<Values> saved(given.ranks[0]);
    auto outcome = Outcome::no_state;
    std::string refusal;
    given.options.keep = 1;
    try {
        on_ranks(given.ranks[0], [&](auto& rank) {
            Training training(rank, given, 0, 0);
            training.begin(given);
            saved[rank.rank()] = training.values();
            if (rank.rank() == 0) { outcome = Outcome::refused; }
            if (given.options.staging == sk::checkpoint::Staging::copy) {
                sk::checkpoint::begin_save(rank, run, 2, training.state, given.options).commit();
            } else {
                sk::checkpoint::save(rank, run, 2, training.state, given.options);
            }
            if (rank.rank() == 0) { outcome = Outcome::loaded; }
        });
    } catch (const std::invalid_argument&) {
        // Of a state that cannot be made, or of a save.
    } catch (const sk::FileError&) {
        require(false, "a file error, of names that ought to have been refused before");
    }
    if (outcome != Outcome::loaded) {
        require(temporary_folder::contents(folder) == before, "what was refused has changed something");
        return outcome;
    }
    const std::string step = run + "/step-00000002";
    for (const auto& each : fs::directory_iterator(folder + "/around")) {
        require(each.path() == run, "something was written beside the run");
    }
    for (const auto& each : fs::directory_iterator(run)) { require(each.path() == step, "another step is there"); }

    Values all;
    for (Values& part : saved) { all.merge(part); }
    const std::size_t from = maker.below(given.groups.size());
    on_ranks(given.ranks[1], [&](auto& rank) {
        Training training(rank, given, 1, from);
        const auto found = sk::checkpoint::latest(rank, run);
        require(found && found->step == 2, "latest does not find it");
        const sk::checkpoint::LoadReport report =
            sk::checkpoint::load(rank, step, training.state, {.names = given.options.names});
        require(report.strings == given.options.strings, "other texts");
        require(report.left.empty() && report.unused.empty(), "a tensor was left");
        for (std::size_t b = 0; b < training.blobs.size(); ++b) {
            require(training.blobs[b] == given.blobs[b].second, "another blob");
        }
        require(training.loss_scale.value() == 64 && training.loss_scale.clean_steps() == 1, "another loss scale");
        // Values of full copies are those of the next window.
        for (auto& layer : training.layers) { const auto window = layer.unshard(); }
        for (const auto& [what, value] : training.values()) {
            const auto at = all.find(what);
            require(at != all.end() && std::memcmp(&at->second, &value, sizeof value) == 0, "another value");
        }
    });
    return outcome;
}

}  // namespace saves
