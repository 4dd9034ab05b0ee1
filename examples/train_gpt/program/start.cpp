// SPDX-License-Identifier: Apache-2.0
#include "start.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include <nlohmann/json.hpp>

#include <shardkit/backend/self/run.hpp>
#include <shardkit/checkpoint/load.hpp>
#include <shardkit/checkpoint/safetensors_file.hpp>
#include <shardkit/mesh/device_mesh.hpp>

#include "../../common/input_error.hpp"
#include "../model/initialise.hpp"
#include "../model/layer_norm.hpp"

namespace train_gpt {

namespace {

namespace fs = std::filesystem;
using program::InputError;

/// The shortest text that is read as this number again.
std::string text_of(double value) {
    std::array<char, 32> digits{};
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
    return {digits.data(), end};
}

std::string text_of(std::span<const Token> text, std::string_view unit) {
    std::array<char, 16> digits{};
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), hash(text, 0), 16).ptr;
    return "of " + std::to_string(text.size()) + " " + std::string(unit) + " with hash " +
           std::string(digits.data(), end);
}

std::string step_text(std::size_t step) { return "step " + std::to_string(step); }

/// The newest whole step in a run's folder; nothing where there is no folder.
std::optional<sk::checkpoint::Folder> newest_step(const std::string& flag, const std::string& folder) {
    std::error_code unknown;
    const fs::file_status status = fs::status(folder, unknown);
    if (!fs::exists(status)) { return std::nullopt; }
    if (!fs::is_directory(status)) { throw program::bad_flag(flag, folder, "a folder"); }
    std::optional<sk::checkpoint::Folder> found;
    try {
        sk::self::run(sk::DeviceMesh(1, 1, 1), [&](auto& rank) { found = sk::checkpoint::latest(rank, folder); });
    } catch (const sk::FileError& error) { throw InputError(flag, " ", error.what()); }
    return found;
}

bool is_there(const fs::path& path) {
    std::error_code unknown;
    return fs::exists(path, unknown);
}

using Strings = std::map<std::string, std::string>;

void require_same(const std::string& folder, const Strings& saved, const Identity& identity) {
    for (const auto& [flag, value] : identity) {
        const auto at = saved.find(flag);
        program::require(at != saved.end(), "--resume '", folder, "': saved without a word on ", flag,
                         ": expected a step that train_gpt has saved");
        program::require(at->second == value, "--resume '", folder, "': saved by a run with ", flag, " ", at->second,
                         ", this one has ", flag, " ", value, ": expected the same");
    }
}

/// A run's folder, or one step's.
void resume(const Options& options, const Identity& identity, Start& start) {
    const std::string& given = options.resume;
    std::string folder = given;
    if (!is_there(fs::path(given) / "manifest.json")) {
        const auto found = newest_step("--resume", given);
        if (!found) {
            // What is started again and again with the same flags starts once with nothing.
            std::error_code none;
            if (given == options.save || fs::equivalent(given, options.save, none)) {
                start.notes += "resume: no whole step in '" + given + "', a new run begins\n";
                return;
            }
            throw program::bad_flag("--resume", given,
                                    is_there(given) ? "a folder with a step that was saved to its end, or one step's"
                                                    : "a folder, there is none");
        }
        folder = found->path;
        for (const std::string& skipped : found->skipped) { start.notes += "resume: passed over " + skipped + "\n"; }
    }
    // The rest of what is there is checked when it is loaded.
    sk::checkpoint::Info info;
    try {
        info = sk::checkpoint::info(folder);
    } catch (const sk::FileError& error) { throw InputError("--resume '", folder, "': ", error.what()); }
    const Strings saved(info.strings.begin(), info.strings.end());
    require_same(folder, saved, identity);
    program::require(info.step <= options.steps, "--resume '", folder, "': saved after step ", info.step,
                     ", this run has --steps ", options.steps, ": expected at least as many");
    const auto names = saved.find(std::string(names_key));
    start.names = names != saved.end() && names->second == name_kinds[1] ? NameKind::gpt2 : NameKind::shardkit;
    start.folder = folder;
    start.first_step = info.step;
    start.notes += "resume: '" + folder + "', after step " + std::to_string(info.step) + " of " +
                   std::to_string(options.steps) + "\n";
    if (!options.init.empty()) { start.notes += "resume: the values of --init were the first step's\n"; }
}

/// That the model beside the file, where something is said of it, is the one of the flags in what no tensor shows.
void require_same_model(const Options& options) {
    const fs::path path = fs::path(options.init).parent_path() / "config.json";
    if (!fs::is_regular_file(path)) { return; }
    const auto config = nlohmann::json::parse(std::ifstream(path), nullptr, false);
    program::require(config.is_object(), "--init: '", path.string(), "' is no JSON object");
    const auto require = [&](const char* key, const nlohmann::json& expected, const std::string& ours) {
        const auto at = config.find(key);
        if (at == config.end() || *at == expected) { return; }
        throw InputError("--init: '", path.string(), "' says ", key, " ", at->dump(), ", this run has ", ours,
                         ": expected the same");
    };
    require("n_head", options.model.heads, "--heads " + std::to_string(options.model.heads));
    require("layer_norm_epsilon", layer_norm_epsilon, text_of(layer_norm_epsilon));
    require("scale_attn_weights", true, "true");
    require("scale_attn_by_inverse_layer_idx", false, "false");
    if (config.value("activation_function", "gelu_new") != "gelu_pytorch_tanh") {
        require("activation_function", "gelu_new", "\"gelu_new\"");
    }
}

bool is_buffer(std::string_view name) {
    return std::any_of(gpt2_buffers.begin(), gpt2_buffers.end(),
                       [&](std::string_view buffer) { return name.ends_with("." + std::string(buffer)); });
}

/// That the head's matrix in the file is the token embedding.
void require_tied(const sk::safetensors::File& file, const std::string& embedding) {
    program::require(file.read<double>(gpt2_head) == file.read<double>(embedding), "--init '", file.path(), "': '",
                     gpt2_head, "' has other values than '", embedding, "': expected --head untied");
}

void require_none(const std::string& what, const std::vector<std::string>& names, const Options& options) {
    program::require(names.empty(), "--init '", options.init, "' ", what, " ", sk::safetensors::listed(names),
                     ": expected GPT-2's names with --layers ", options.model.layers, " and --head ",
                     program::name_of(head_names, options.model.head));
}

/// That a file of GPT-2 has all parameters, and nothing that would be left behind unsaid.
void check_gpt2_file(const Options& options, const sk::safetensors::File& file, Start& start) {
    const std::string embedding(gpt2_embedding[0].name);
    if (file.find(std::string(gpt2_prefix) + embedding) == nullptr && file.find(embedding) != nullptr) {
        start.prefix.clear();
    }
    std::set<std::string, std::less<>> expected;
    std::vector<std::string> missing;
    for_each_gpt2_name(options.model, start.prefix, [&](std::string name) {
        if (file.find(name) == nullptr) { missing.push_back(name); }
        expected.insert(std::move(name));
    });
    require_none("has no", missing, options);
    std::vector<std::string> others;
    for (const auto& tensor : file.tensors()) {
        if (expected.contains(tensor.name)) { continue; }
        start.subset = true;
        if (tensor.name == gpt2_head) {
            require_tied(file, start.prefix + embedding);
        } else if (!is_buffer(tensor.name)) {
            others.push_back(tensor.name);
        }
    }
    require_none("has besides", others, options);
    require_same_model(options);
}

void check_init(const Options& options, Start& start) {
    std::error_code ignored;
    if (fs::is_directory(options.init, ignored)) {
        throw program::bad_flag("--init", options.init, "a safetensors file, this is a folder");
    }
    try {
        const sk::safetensors::File file(options.init);
        if (options.names == NameKind::gpt2) { check_gpt2_file(options, file, start); }
    } catch (const sk::FileError& error) { throw InputError("--init ", error.what()); }
}

/// That what will be saved is newer than all that is there.
void check_save(const Options& options, const Start& start) {
    const auto found = newest_step("--save", options.save);
    if (!found || found->step <= start.first_step) { return; }
    throw program::bad_flag("--save", options.save,
                            start.folder.empty()
                                ? "a folder without " + step_text(found->step) + ", or --resume"
                                : "a folder without " + step_text(found->step) + ", which is newer than " +
                                      step_text(start.first_step) + " of --resume");
}

}  // namespace

Identity identity_of(const Options& options, std::span<const Token> text) {
    const ModelConfig& model = options.model;
    const auto named = [](const auto& names, auto value) { return std::string(program::name_of(names, value)); };
    Identity identity{
        {"--layers", std::to_string(model.layers)},
        {"--width", std::to_string(model.width)},
        {"--heads", std::to_string(model.heads)},
        {"--head", named(head_names, model.head)},
        {"--sequence", std::to_string(model.sequence)},
        {"--batch", std::to_string(options.batch)},
        {"--slices", std::to_string(options.slices)},
        {"--dtype", named(dtype_names, options.dtype)},
        {"--optimizer", named(optimizer_names, options.optimizer)},
        {"--states", named(state_names, options.states)},
        {"--master", named(master_names, options.master)},
        {"--lr", text_of(options.learning_rate)},
        {"--weight-decay", text_of(options.weight_decay)},
        {"--clip", text_of(options.clip)},
        {"--seed", std::to_string(options.seed)},
        {"--text", text_of(text, options.unit())},
    };
    if (model.vocabulary != bytes_vocabulary) {
        identity.emplace_back("--vocabulary", std::to_string(model.vocabulary));
    }
    if (model.experts > 0) {
        for (const auto& [flag, number] : {std::pair("--experts", model.experts), std::pair("--top", model.top),
                                           std::pair("--capacity", model.capacity)}) {
            identity.emplace_back(flag, std::to_string(number));
        }
    }
    return identity;
}

Start find_start(const Options& options, const Identity& identity) {
    Start start;
    if (!options.resume.empty()) { resume(options, identity, start); }
    if (!options.init.empty() && start.folder.empty()) { check_init(options, start); }
    if (!options.save.empty()) { check_save(options, start); }
    return start;
}

Inputs read_inputs(const Options& o) {
    Inputs inputs;
    const bool saves_or_loads = !(o.save.empty() && o.resume.empty() && o.init.empty());
    if (o.action == Options::Action::train || saves_or_loads ||
        !(o.text.empty() && o.tokens.empty() && o.encoding.empty())) {
        inputs.text = read_text(o);
    }
    if (saves_or_loads) {
        inputs.identity = identity_of(o, inputs.text.tokens);
        inputs.start = find_start(o, inputs.identity);
    }
    return inputs;
}

}  // namespace train_gpt
