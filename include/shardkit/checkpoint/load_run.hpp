// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/checkpoint/checkpoint_files.hpp>
#include <shardkit/checkpoint/checkpoint_plan.hpp>
#include <shardkit/checkpoint/checkpoint_state.hpp>
#include <shardkit/checkpoint/choose_forms.hpp>
#include <shardkit/checkpoint/file_names.hpp>
#include <shardkit/checkpoint/find_numbers.hpp>
#include <shardkit/checkpoint/load_options.hpp>
#include <shardkit/checkpoint/other_optimizer.hpp>
#include <shardkit/checkpoint/read_tensor.hpp>
#include <shardkit/checkpoint/together.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/detail/range.hpp>

namespace shardkit::detail {

/// One load on one rank.
class LoadRun {
  public:
    LoadRun(RankWorld& world, checkpoint::LoadOptions options, SourceLocation where)
        : world_(world),
          options_(std::move(options)),
          calls_(options_.files != nullptr ? *options_.files : posix_files()),
          where_(where) {}

    /// Collective over the world. `open(calls)` gives the files.
    template <class Open, class State>
    checkpoint::LoadReport run(const Open& open, const State& state) {
        together(world_, where_, [&] {
            state_ = Access::capture(state, where_);
            files_ = std::make_unique<CheckpointFiles>(open(calls_));
            for (const auto& group : state_.groups) {
                group->require_idle("load", where_);
                group->begin_load(where_);
            }
            choose_forms(state_.groups, *files_, options_.names, where_);
            find_tensors();
            require_shared();
            require_whole_blocks(state_.groups, *files_, where_);
            find_numbers();
            refuse_unmatched();
            if (options_.states) { Access::check_numbers(state, state_, where_); }
        });
        Fnv identity;
        files_->add_to(identity);
        identity.add(options_.states ? 1 : 0);
        identity.add(options_.subset ? 1 : 0);
        for (const Target& target : targets_) {
            identity.add(target.tensor.name);
            identity.add(target.tensor.order.hash());
            identity.add(target.from->tensor.name);
        }
        for (const SavedScalar& scalar : state_.scalars) { identity.add(scalar.name); }
        for (const auto& [name, bytes] : state_.blobs) { identity.add(name); }
        require_same(world_, "load",
                     concat(files_->first_path().empty() ? "nothing" : files_->first_path(),
                            targets_.empty() ? ""
                                             : concat(", ", targets_.size(), " tensors, first '",
                                                      targets_.front().tensor.name, "'"),
                            options_.states ? "" : ", without states", options_.subset ? ", a subset" : ""),
                     identity.hash, where_);
        for (std::size_t t = targets_.size(); t > 0; --t) {
            torn(targets_[t - 1]).begin(targets_[t - 1].tensor.parameter, kind(targets_[t - 1]), "load", where_);
        }
        const Failure failure = Failure::first(world_, attempt([&] { read(); }), where_);
        // This follows a failure too, so that the same copies are stale on every rank.
        for (const auto& group : state_.groups) { group->end_load(); }
        failure.raise(where_);
        if (files_->verified()) { verify(); }
        // Values are torn until what counts them is theirs.
        if (options_.states) {
            together(world_, where_, [&] { Access::restore_numbers(state, state_, where_); });
        }
        for (const Target& target : targets_) { torn(target).end(target.tensor.parameter, kind(target)); }
        for (FindNumbers::Blob& blob : blobs_) { *blob.to = std::move(blob.bytes); }
        report_.step = files_->step();
        report_.strings = files_->strings();
        return report_;
    }

  private:
    using Stored = CheckpointFiles::Stored;
    struct Target {
        PlannedTensor tensor;  ///< with its place in the file
        Stored* from = nullptr;
        bool digests = false;  ///< whether this is the first target that reads `from`
        TensorReader::Rest rest{};
        std::uint32_t digest = 0;
    };
    static constexpr std::string_view model_file = "model";

    TornValues& torn(const Target& target) const noexcept { return state_.groups[target.tensor.group]->torn(); }
    std::string_view kind(const Target& target) const noexcept {
        const StoredKind& its = state_.groups[target.tensor.group]->values[target.tensor.values]->kind;
        return its.role == Role::states ? its.state : TornValues::parameters;
    }
    /// The names that a tensor may have in the files: first its own, then those of the parameter's aliases.
    using Names = List<std::string>;
    /// Finds a tensor of a kind's file by any of its names. All tensors with these names count as used.
    Stored* find(std::string_view file, const Names& names) {
        Stored* found = files_->find(file, names.front());
        for (std::size_t alias = 1; alias < names.size(); ++alias) {
            Stored* const other = files_->find(file, names[alias]);
            if (other == nullptr) { continue; }
            other->used = true;
            if (found == nullptr) { found = other; }
            if (found != other) { require_equal(*found, *other); }
        }
        if (found == nullptr) { found = files_->find_alias(file, names.front()); }
        if (found != nullptr) { found->used = true; }
        return found;
    }
    /// Checks that two tensors which are one in the state have the same bytes. Rank 0 reads them, and its error
    /// reaches all.
    void require_equal(const Stored& one, const Stored& other) const {
        const auto refuse = [&](std::string_view what) {
            throw_file_error(files_->path(one), where_, "tensors '", safetensors::detail::shown(one.tensor.name),
                             "' and '", safetensors::detail::shown(other.tensor.name),
                             "' are one parameter of the state, and ", what, " in the files");
        };
        if (one.tensor.type != other.tensor.type || !(one.tensor.shape == other.tensor.shape)) {
            refuse("have other types or shapes");
        }
        if (world_.rank() != 0) { return; }
        std::vector<std::byte> bytes(chunk_bytes);
        std::vector<std::byte> others(chunk_bytes);
        for (std::uint64_t at = 0; at < one.tensor.bytes.size(); at += chunk_bytes) {
            const std::size_t count = std::min<std::size_t>(chunk_bytes, one.tensor.bytes.size() - at);
            files_->file(one).read(one.begin + at, std::span(bytes).first(count));
            files_->file(other).read(other.begin + at, std::span(others).first(count));
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
            for (std::size_t v = 0; v < group.values.size(); ++v) {
                const bool is_state = group.values[v]->kind.role == Role::states;
                if (is_state && !options_.states) { continue; }
                for (std::size_t p = 0; p < group.geometry().parameters.size(); ++p) {
                    if (!is_state || group.values[v]->of[p] != 0) { find_tensors_of(g, v, p); }
                }
            }
        }
    }
    void find_tensors_of(std::size_t g, std::size_t v, std::size_t p) {
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
        List<Stored*> from;
        for (const Names& each : names) { from.push_back(source(values, each)); }
        const Stored* has = nullptr;
        const Names* lacks = nullptr;
        for (std::size_t t = from.size(); t-- > 0;) {
            if (from[t] == nullptr) { lacks = &names[t]; }
            if (from[t] != nullptr) { has = from[t]; }
        }
        if (values.kind.role == Role::states && lacks != nullptr && has != nullptr) {
            throw_file_error(files_->path(*has), where_, "it and the files beside it have '",
                             values.kind.of(has->tensor.name), "' and not '", values.kind.of(lacks->front()),
                             "', which are one parameter here: its updates could not go on from half of a state; "
                             "checkpoint::LoadOptions::states = false loads the parameters alone");
        }
        for (std::size_t t = 0; t < tensors.size(); ++t) {
            add_target(g, v, p, names[t].front(), tensors[t].order, from[t]);
        }
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
            if (values.kind.role != Role::master) { note(report_.left, values.kind.of(name)); }
            return;
        }
        state_.groups[g]->values[v]->will_read(p);
        const std::string& path = files_->path(*from);
        auto rest = TensorReader::Rest::none;
        if (!(from->tensor.shape == order.shape())) {
            const auto fewer =
                options_.grown && options_.grown(name) ? order.of_fewer_rows(from->tensor.shape) : std::nullopt;
            if (!fewer) {
                throw_file_error(path, where_, "tensor '", name, "' has shape ", from->tensor.shape.describe(),
                                 ", expected ", order.shape().describe());
            }
            order = *fewer;
            rest = values.kind.role == Role::states ? TensorReader::Rest::zero : TensorReader::Rest::stays;
            note(report_.grown, values.kind.of(name));
        }
        if (!is_read(from->tensor.type, values.type)) {
            throw_file_error(path, where_, "tensor '", name, "' has elements of type ",
                             safetensors::name(from->tensor.type), ", expected ", expected_types(values.type));
        }
        if (values.type == ElementType::uint8) { require_scale(path, name, from->scale, values.code_scale, where_); }
        const std::size_t size = from->tensor.bytes.size() / order.shape().numel();
        const std::uint64_t begin = from->begin + order.begin() * size;
        bool first = !std::exchange(from->read, true);
        if (order.shares()) {
            std::uint64_t& bytes = entry_of(from->parts, begin).value;
            first = bytes == 0;
            if (first) { bytes = order.numel() * size; }
        }
        targets_.push_back({{g, v, p, order, name, values.type, begin, order.numel() * size}, from, first, rest, 0});
    }
    /// Checks that all elements of tensors which parameters share are read: otherwise no digest could be compared.
    void require_shared() const {
        for (const Stored& from : files_->tensors()) {
            std::uint64_t next = from.begin;
            for (const auto& [begin, bytes] : from.parts) { next = begin == next ? begin + bytes : 0; }
            if (from.parts.empty() || next == from.begin + from.tensor.bytes.size()) { continue; }
            throw_file_error(files_->path(from), where_, "tensor '", safetensors::detail::shown(from.tensor.name),
                             "' is shared by ", from.parts.size(),
                             " parameters of the state, which are not one for each of its elements");
        }
    }
    void find_numbers() {
        FindNumbers numbers(*files_, where_);
        if (options_.states) { numbers.find(state_, tensors_of_states(), report_.left); }
        blobs_ = numbers.blobs(state_, report_.left);
    }
    FindNumbers::Tensors tensors_of_states() const {
        FindNumbers::Tensors tensors;
        for (const auto& group : state_.groups) { tensors.emplace_back(group->geometry().parameters.size()); }
        for (const Target& target : targets_) {
            const PlannedTensor& its = target.tensor;
            if (state_.groups[its.group]->values[its.values]->kind.role != Role::states) { continue; }
            FindNumbers::From& from = tensors[its.group][its.parameter];
            if (from.names.empty()) { from.values = its.values; }
            if (from.values != its.values) { continue; }
            from.names.push_back(target.from->tensor.name);
            from.plain =
                from.plain && (its.order.plain() || target.rest == TensorReader::Rest::zero) && !its.order.shares();
            from.elements += its.order.numel();
        }
        return tensors;
    }
    void refuse_unmatched() {
        for (const Stored& stored : files_->tensors()) {
            const std::string& kind = files_->kind(stored);
            const bool is_state = kind != model_file && kind != StoredKind{Role::master, {}}.file();
            if (stored.used || (!options_.states && is_state)) { continue; }
            report_.unused.push_back(StoredKind::in_words(kind, stored.tensor.name));
        }
        if (options_.subset || (report_.left.empty() && report_.unused.empty())) { return; }
        const std::string path = files_->first_path().empty() ? std::string("load") : files_->first_path();
        throw_file_error(path, where_, options_.states ? other_optimizer(*files_, state_.groups) : "it ",
                         "and the files beside it lack ", safetensors::listed(report_.left), ", and have ",
                         safetensors::listed(report_.unused),
                         " besides: see checkpoint::LoadOptions::states and subset");
    }

    void read() {
        std::unique_ptr<engine::MemoryCopies> copies;  // made if the host cannot write some values
        for (Target& target : targets_) {
            const SavedGroup& group = *state_.groups[target.tensor.group];
            const SavedValues& values = *group.values[target.tensor.values];
            if (copies == nullptr && !values.on_host) { copies = values.copies(where_); }
            const TensorReader reader(target.tensor, group, files_->file(*target.from), target.from->tensor.type,
                                      {world_.rank(), world_.size()}, copies.get(), target.rest);
            target.digest = reader.read(target.digests && files_->verified());
            ++report_.tensors;
        }
        for (std::size_t slot = 0; copies != nullptr && slot < engine::MemoryCopies::slots; ++slot) {
            copies->finish(slot);
        }
        for (const auto& group : state_.groups) { group->take_copies(); }
    }
    /// Checks that every byte that any rank has read is the byte that was written. Collective over the world.
    void verify() {
        List<std::uint32_t> own;
        for (const Target& target : targets_) { own.push_back(target.digest); }
        const auto all = world_.gather(own.span(), where_);
        for (std::size_t t = 0; t < targets_.size(); ++t) {
            if (!targets_[t].digests) { continue; }
            std::uint32_t sum = 0;
            for (std::size_t rank = 0; rank < world_.size(); ++rank) { sum ^= all[rank * own.size() + t]; }
            Stored& from = *targets_[t].from;
            const PlannedTensor& its = targets_[t].tensor;
            from.sum ^= crc32c::behind(sum, from.begin + from.tensor.bytes.size() - (its.begin + its.bytes));
        }
        for (const Stored& from : files_->tensors()) {
            if (from.read && crc32c::finished(from.sum, from.tensor.bytes.size()) != from.crc32c) {
                throw_damaged(files_->path(from), concat("tensor '", from.tensor.name, "'"), where_);
            }
        }
    }

    RankWorld& world_;
    checkpoint::LoadOptions options_;
    checkpoint::FileCalls& calls_;
    SourceLocation where_;
    SavedState state_;
    std::unique_ptr<CheckpointFiles> files_;
    List<Target> targets_;
    List<FindNumbers::Blob> blobs_;
    checkpoint::LoadReport report_;
};

}  // namespace shardkit::detail
