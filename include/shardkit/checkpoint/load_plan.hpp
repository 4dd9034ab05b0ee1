// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/checkpoint/checkpoint_files.hpp>
#include <shardkit/checkpoint/checkpoint_plan.hpp>
#include <shardkit/checkpoint/convert_elements.hpp>
#include <shardkit/checkpoint/converted_states.hpp>
#include <shardkit/checkpoint/file_names.hpp>
#include <shardkit/checkpoint/find_numbers.hpp>
#include <shardkit/checkpoint/options.hpp>
#include <shardkit/checkpoint/read_tensor.hpp>
#include <shardkit/checkpoint/saved_group.hpp>
#include <shardkit/checkpoint/state_to_save_or_load.hpp>
#include <shardkit/checkpoint/stored_as.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/detail/range.hpp>

namespace shardkit::detail {

/// What a load reads and where to, found in files before any value is changed. A save makes one of the files that it
/// is about to write, and so proves that a load will find what it needs.
class LoadPlan {
  public:
    using Stored = CheckpointFiles::Stored;
    struct Target {
        PlannedTensor tensor;  ///< with its place in the file
        Stored* from = nullptr;
        bool digests = false;  ///< whether this is the first target that reads `from`
        TensorReader::Rest rest{};
        std::uint32_t digest = 0;
    };

    /// What is done about two tensors of the files that are one parameter of the state: this rank compares them byte
    /// for byte, another one does, or they are refused, as what the files stand for cannot be read here.
    enum class Twice : std::uint8_t { compared, elsewhere, refused };

    /// Replaces the numbers of `state` that the files have, and shows its values in the files' forms.
    /// @throws FileError that says what is missing, or does not fit
    LoadPlan(SavedState& state, CheckpointFiles& files, const checkpoint::LoadOptions& options, Twice twice,
             SourceLocation where)
        : state_(state), files_(files), options_(options), twice_(twice), where_(where) {
        choose_forms(state_.groups, files_, options_.names, where_);
        find_tensors();
        require_shared();
        require_no_further_states();
        find_numbers();
        refuse_unmatched();
    }

    List<Target> targets;
    List<FindNumbers::Blob> blobs;
    checkpoint::LoadReport report;

  private:
    static constexpr std::string_view model_file = "model";
    /// Of the state of one parameter: a part of it that the files have, and one that they lack, as messages say it.
    struct OfState {
        const Stored* from = nullptr;
        std::string has, lacks;
    };

    /// The names that a tensor may have in the files: first its own, then those of the parameter's aliases.
    using Names = List<std::string>;
    /// Finds a tensor of a kind's file by any of its names. All tensors with these names count as used.
    Stored* find(std::string_view file, const Names& names) {
        Stored* found = files_.find(file, names.front());
        for (std::size_t alias = 1; alias < names.size(); ++alias) {
            Stored* const other = files_.find(file, names[alias]);
            if (other == nullptr) { continue; }
            other->used = true;
            if (found == nullptr) { found = other; }
            if (found != other) { require_equal(*found, *other); }
        }
        if (found == nullptr) { found = files_.find_alias(file, names.front()); }
        if (found != nullptr) { found->used = true; }
        return found;
    }
    /// Checks that two tensors which are one in the state have the same bytes. Rank 0 reads them, and its error
    /// reaches all.
    void require_equal(const Stored& one, const Stored& other) const {
        const auto refuse = [&](std::string_view what) {
            throw_file_error(files_.path(one), where_, "tensors '", safetensors::detail::shown(one.tensor.name),
                             "' and '", safetensors::detail::shown(other.tensor.name),
                             "' are one parameter of the state, and ", what, " in the files");
        };
        if (one.tensor.type != other.tensor.type || !(one.tensor.shape == other.tensor.shape)) {
            refuse("have other types or shapes");
        }
        if (twice_ == Twice::refused) { refuse("two tensors, which only a load compares,"); }
        if (twice_ == Twice::elsewhere) { return; }
        std::vector<std::byte> bytes(chunk_bytes);
        std::vector<std::byte> others(chunk_bytes);
        for (std::uint64_t at = 0; at < one.tensor.bytes.size(); at += chunk_bytes) {
            const std::size_t count = std::min<std::size_t>(chunk_bytes, one.tensor.bytes.size() - at);
            files_.file(one).read(one.begin + at, std::span(bytes).first(count));
            files_.file(other).read(other.begin + at, std::span(others).first(count));
            if (std::memcmp(bytes.data(), others.data(), count) != 0) { refuse("have other values"); }
        }
    }
    /// Returns the tensor to load values from: that of their own kind, or the best one with the same numbers.
    Stored* source(const SavedValues& values, const Names& names) {
        if (values.kind.role == Role::states) { return find(values.kind.file(), names); }
        // A master holds the numbers of the 16-bit model with more digits: both count as used.
        Stored* const model = find(model_file, names);
        Stored* const master = find(StoredKind{Role::master, {}}.file(), names);
        if (values.kind.role == Role::master) { return master != nullptr ? master : model; }
        return model != nullptr && (master == nullptr || same_elements(model->tensor.type, values.type)) ? model
                                                                                                         : master;
    }
    void find_tensors() {
        for (std::size_t g = 0; g < state_.groups.size(); ++g) {
            const SavedGroup& group = *state_.groups[g];
            List<OfState> states(group.geometry().parameters.size());
            for (std::size_t v = 0; v < group.values.size(); ++v) {
                const bool is_state = group.values[v]->kind.role == Role::states;
                if (is_state && !options_.states) { continue; }
                for (std::size_t p = 0; p < states.size(); ++p) {
                    if (!is_state || group.values[v]->of[p] != 0) { find_tensors_of(g, v, p, states[p]); }
                }
            }
            for (const OfState& state : states) {
                if (state.from == nullptr || state.lacks.empty()) { continue; }
                refuse_state(*state.from, "and the files beside it have '", state.has, "' and not '", state.lacks,
                             "', which are of one parameter here: its updates could not go on from half of a state");
            }
        }
    }
    template <class... Text>
    [[noreturn]] void refuse_state(const Stored& from, const Text&... what) const {
        const std::string other = other_optimizer(files_, state_.groups);
        throw_file_error(files_.path(from), where_, other, what...,
                         other == no_other_optimizer
                             ? "; checkpoint::LoadOptions::states = false loads the parameters alone"
                             : "");
    }
    void find_tensors_of(std::size_t g, std::size_t v, std::size_t p, OfState& state) {
        const GroupGeometry& geometry = state_.groups[g]->geometry();
        const PlacedParameter& parameter = geometry.parameters[p];
        const SavedValues& values = *state_.groups[g]->values[v];
        auto tensors = values.stored(options_.names, p, where_);
        List<Names> names(tensors.size());
        for (std::size_t t = 0; t < tensors.size(); ++t) { names[t].push_back(tensors[t].name); }
        for (const ParameterName& alias : geometry.aliases) {
            if (alias.number != p || alias.name == parameter.name) { continue; }
            ParameterRecord called = parameter;
            called.name = alias.name;
            const std::vector<std::string> others = names_of_alias(options_.names, geometry.path, called, where_);
            for (std::size_t t = 0; t < names.size() && others.size() == names.size(); ++t) {
                if (others[t] != names[t].front()) { names[t].push_back(others[t]); }
            }
        }
        const bool is_state = values.kind.role == Role::states;
        for (std::size_t t = 0; t < tensors.size(); ++t) {
            const std::string& name = names[t].front();
            Stored* const from = source(values, names[t]);
            if (is_state && from == nullptr && state.lacks.empty()) { state.lacks = values.kind.of(name); }
            if (is_state && from != nullptr) {
                require_rule(*from, values);
                if (state.from == nullptr) { state.has = values.kind.of(from->tensor.name); }
                state.from = from;
            }
            add_target(g, v, p, name, tensors[t].order, from);
        }
    }
    /// Checks that a state is of the rule that it is loaded into: what another one calls by the same name may be
    /// another number, as a sum of gradients is and their mean.
    void require_rule(const Stored& from, const SavedValues& values) const {
        if (from.rule == values.rule) { return; }
        const std::string state = values.kind.of(safetensors::detail::shown(from.tensor.name));
        const std::string rule =
            from.rule.empty() ? "a rule that is not named" : safetensors::detail::shown(from.rule);
        refuse_state(from, "has '", state, "' as a state of ", rule, ", expected one of ", values.rule);
    }
    /// Adds a name that parameters which share a tensor have in common.
    static void note(std::vector<std::string>& names, std::string name) {
        if (!has(names, name)) { names.push_back(std::move(name)); }
    }
    void add_target(std::size_t g, std::size_t v, std::size_t p, const std::string& name, StoredOrder order,
                    Stored* from) {
        const SavedValues& values = *state_.groups[g]->values[v];
        if (from == nullptr) {
            // Without a master in the files, the parameter's own tensor is used; if that is missing too, it is
            // reported.
            if (values.kind.role != Role::master) { note(report.left, values.kind.of(name)); }
            return;
        }
        state_.groups[g]->values[v]->will_read(p);
        const std::string& path = files_.path(*from);
        auto rest = order.padded() ? TensorReader::Rest::zero : TensorReader::Rest::none;
        if (!(from->tensor.shape == order.shape())) {
            const auto fewer =
                options_.grown && options_.grown(name) ? order.of_fewer_rows(from->tensor.shape) : std::nullopt;
            if (!fewer) {
                throw_file_error(path, where_, "tensor '", name, "' has shape ", from->tensor.shape.describe(),
                                 ", expected ", order.shape().describe());
            }
            order = *fewer;
            rest = values.kind.role == Role::states ? TensorReader::Rest::zero : TensorReader::Rest::stays;
            note(report.grown, values.kind.of(name));
        }
        if (!is_read(from->tensor.type, values.type)) {
            throw_file_error(path, where_, "tensor '", name, "' has elements of type ",
                             safetensors::name(from->tensor.type), ", expected ", expected_types(values.type));
        }
        if (values.type == ElementType::uint8) { require_scale(path, name, from->scale, values.code_scale, where_); }
        const std::size_t size = safetensors::bits_of(from->tensor.type) / 8;
        const std::uint64_t begin = from->begin + order.begin() * size;
        if (from->tensor.name == name && !order.shares()) { require_one_reader(g, p, *from); }
        bool first = !std::exchange(from->read, true);
        if (order.shares()) {
            std::uint64_t& bytes = from->parts[begin];
            first = bytes == 0;
            if (first) { bytes = order.numel() * size; }
        }
        targets.push_back({{g, v, p, order, name, values.type, begin, order.numel() * size}, from, first, rest, 0});
    }
    /// Checks that all elements of tensors which parameters share are read: otherwise no digest could be compared.
    void require_shared() const {
        for (const Stored& from : files_.tensors()) {
            std::uint64_t next = from.begin;
            for (const auto& [begin, bytes] : from.parts) { next = begin == next ? begin + bytes : 0; }
            if (from.parts.empty() || next == from.begin + from.tensor.bytes.size()) { continue; }
            throw_file_error(files_.path(from), where_, "tensor '", safetensors::detail::shown(from.tensor.name),
                             "' is shared by ", from.parts.size(),
                             " parameters of the state, which are not one for each of its elements");
        }
    }
    /// Checks that two parameters are not loaded from one tensor, unless the files say that it is both.
    void require_one_reader(std::size_t g, std::size_t p, Stored& from) const {
        const GroupGeometry& geometry = state_.groups[g]->geometry();
        const std::string name = concat("'", geometry.path, ".", geometry.parameters[p].name, "'");
        if (!from.reader.empty() && from.reader != name) {
            throw_invalid_argument(where_, "checkpoint: ", from.reader, " and ", name, " are both loaded from '",
                                   safetensors::detail::shown(from.tensor.name),
                                   "': expected a tensor for each, or one parameter with an Alias");
        }
        from.reader = name;
    }
    /// Checks that the files have no further states of parameters whose states are loaded.
    void require_no_further_states() const {
        std::map<std::string_view, const Target*> loaded;
        for (const Target& target : targets) {
            const StoredKind& kind = state_.groups[target.tensor.group]->values[target.tensor.values]->kind;
            if (kind.role == Role::states && !kind.scales) { loaded.emplace(target.from->tensor.name, &target); }
        }
        for (const Stored& stored : files_.tensors()) {
            if (stored.used || !StoredKind::state_of(files_.kind(stored))) { continue; }
            const auto of = loaded.find(stored.tensor.name);
            if (of == loaded.end()) { continue; }
            const PlannedTensor& its = of->second->tensor;
            const StoredKind& kind = state_.groups[its.group]->values[its.values]->kind;
            refuse_state(stored, "has '",
                         StoredKind::in_words(files_.kind(stored), safetensors::detail::shown(stored.tensor.name)),
                         "' beside '", kind.of(safetensors::detail::shown(stored.tensor.name)),
                         "', and there is no such state here: its updates could not go on from half of a state");
        }
    }
    void find_numbers() {
        FindNumbers numbers(files_, where_);
        if (options_.states) { numbers.find(state_, tensors_of_progress(), report.left); }
        blobs = numbers.blobs(state_, report.left);
    }
    /// Returns whether values are states of which each element of the parameters has one.
    static bool is_of_elements(const SavedGroup& group, const SavedValues& values) {
        return values.kind.role == Role::states && &values.geometry() == &group.geometry();
    }
    /// Returns the tensors by whose names each parameter's progress is found: those of its states, or its own where
    /// it has none.
    FindNumbers::Tensors tensors_of_progress() const {
        FindNumbers::Tensors tensors;
        for (const auto& group : state_.groups) {
            List<FindNumbers::From>& from = tensors.emplace_back(group->geometry().parameters.size());
            for (const auto& values : group->values) {
                if (!is_of_elements(*group, *values)) { continue; }
                for (std::size_t p = 0; p < from.size(); ++p) {
                    from[p].states = from[p].states || values->of[p] != 0;
                }
            }
        }
        for (const Target& target : targets) {
            const PlannedTensor& its = target.tensor;
            FindNumbers::From& from = tensors[its.group][its.parameter];
            const SavedGroup& group = *state_.groups[its.group];
            const SavedValues& values = *group.values[its.values];
            if (from.states ? !is_of_elements(group, values) : values.kind.role != Role::parameters) { continue; }
            if (from.names.empty()) { from.values = its.values; }
            if (from.values != its.values) { continue; }
            from.names.push_back(target.from->tensor.name);
            from.plain =
                from.plain && (its.order.plain() || target.rest == TensorReader::Rest::zero) && !its.order.shares();
            from.elements +=
                its.order.padded() ? group.geometry().parameters[its.parameter].shape.numel() : its.order.numel();
        }
        return tensors;
    }
    void refuse_unmatched() {
        for (const Stored& stored : files_.tensors()) {
            const std::string& kind = files_.kind(stored);
            const bool is_state = kind != model_file && kind != StoredKind{Role::master, {}}.file();
            if (stored.used || (!options_.states && is_state)) { continue; }
            report.unused.push_back(StoredKind::in_words(kind, stored.tensor.name));
        }
        if (options_.subset || (report.left.empty() && report.unused.empty())) { return; }
        const std::string path = files_.first_path().empty() ? std::string("load") : files_.first_path();
        throw_file_error(
            path, where_, options_.states ? other_optimizer(files_, state_.groups) : std::string(no_other_optimizer),
            "and the files beside it lack ", safetensors::listed(report.left), ", and have ",
            safetensors::listed(report.unused), " besides: see checkpoint::LoadOptions::states and subset");
    }

    SavedState& state_;
    CheckpointFiles& files_;
    const checkpoint::LoadOptions& options_;
    Twice twice_;
    SourceLocation where_;
};

}  // namespace shardkit::detail
