// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/checkpoint/checkpoint_files.hpp>
#include <shardkit/checkpoint/checkpoint_plan.hpp>
#include <shardkit/checkpoint/checkpoint_state.hpp>
#include <shardkit/checkpoint/load_options.hpp>
#include <shardkit/checkpoint/read_tensor.hpp>
#include <shardkit/checkpoint/together.hpp>

namespace shardkit::detail {

/// One load on one rank.
class LoadRun {
  public:
    LoadRun(RankWorld& world, LoadOptions options, SourceLocation where)
        : world_(world),
          options_(std::move(options)),
          calls_(options_.files != nullptr ? *options_.files : posix_files()),
          where_(where) {}

    /// Collective over the world. `open(calls)` gives the files, `capture()` the state.
    template <class Open, class Capture>
    LoadReport run(const Open& open, const Capture& capture) {
        together(world_, where_, [&] {
            state_ = capture();
            files_ = std::make_unique<CheckpointFiles>(open(calls_));
            for (const auto& group : state_.groups) {
                group->require_idle("load", where_);
                group->begin_load(where_);
            }
            find_tensors();
            find_scalars();
            refuse_unmatched();
        });
        Fnv identity;
        files_->add_to(identity);
        identity.add(options_.states ? 1 : 0);
        identity.add(options_.subset ? 1 : 0);
        for (const Target& target : targets_) {
            identity.add(target.tensor.name);
            identity.add(target.tensor.order.hash());
        }
        for (const SavedScalar& scalar : scalars_) { identity.add(scalar.name); }
        for (const auto& [name, bytes] : state_.blobs) { identity.add(name); }
        require_same(world_, "load",
                     concat(files_->files().empty() ? "nothing" : files_->files().front().path(),
                            targets_.empty() ? ""
                                             : concat(", ", targets_.size(), " tensors, first '",
                                                      targets_.front().tensor.name, "'"),
                            options_.states ? "" : ", without states", options_.subset ? ", a subset" : ""),
                     identity.hash, where_);
        for (std::size_t t = targets_.size(); t > 0; --t) {
            torn(targets_[t - 1]).begin(targets_[t - 1].tensor.parameter, kind(targets_[t - 1]), "load", where_);
        }
        const Failure failure = Failure::first(world_, attempt([&] { read(); }), where_);
        // Also after a failure, so that what is stale is stale on every rank.
        for (const auto& group : state_.groups) { group->end_load(); }
        failure.raise(where_);
        if (files_->verified()) { verify(); }
        for (const Target& target : targets_) { torn(target).end(target.tensor.parameter, kind(target)); }
        for (auto& [to, bytes] : blobs_) { *to = std::move(bytes); }
        report_.step = files_->step();
        report_.strings = files_->strings();
        return report_;
    }
    /// Scalars in the order of the state's; empty where none were asked for, or one is not there.
    const std::vector<SavedScalar>& scalars() const noexcept { return scalars_; }

  private:
    using Stored = CheckpointFiles::Stored;
    struct Target {
        PlannedTensor tensor;  ///< as it lies in the file
        Stored* from = nullptr;
        bool digests = false;  ///< the first that reads `from`
        std::uint32_t digest = 0;
    };

    TornValues& torn(const Target& target) const noexcept { return state_.groups[target.tensor.group]->torn(); }
    std::string_view kind(const Target& target) const noexcept {
        const std::string_view its = state_.groups[target.tensor.group]->values[target.tensor.values]->kind;
        return its == "master" ? TornValues::parameters : its;
    }
    /// The tensor from which values come: their own kind's, or what holds the same numbers best.
    Stored* source(const SavedValues& values, const std::string& name) {
        Stored* const model = files_->find("model", name);
        Stored* const master = files_->find("master", name);
        if (values.kind == "parameter") {
            return model != nullptr && (master == nullptr || same_elements(model->tensor.type, values.type)) ? model
                                                                                                             : master;
        }
        if (values.kind == "master") { return master != nullptr ? master : model; }
        return files_->find(values.kind, name);
    }
    void find_tensors() {
        for (std::size_t g = 0; g < state_.groups.size(); ++g) {
            const SavedGroup& group = *state_.groups[g];
            const GroupGeometry& geometry = group.geometry();
            for (std::size_t v = 0; v < group.values.size(); ++v) {
                const SavedValues& values = *group.values[v];
                const bool is_state = values.kind != "parameter" && values.kind != "master";
                if (is_state && !options_.states) { continue; }
                for (std::size_t p = 0; p < geometry.parameters.size(); ++p) {
                    const PlacedParameter& parameter = geometry.parameters[p];
                    if (parameter.frozen && is_state) { continue; }
                    const StoredAs stored = options_.names(geometry.path, parameter);
                    const StoredOrder order(stored, geometry.path, parameter, where_);
                    // A master beside the model's 16 bits says the same with more digits: both are spoken for.
                    for (const char* kind : {"model", "master"}) {
                        Stored* const known = is_state ? nullptr : files_->find(kind, stored.name);
                        if (known != nullptr) { known->used = true; }
                    }
                    add_target(g, v, p, stored.name, order, source(values, stored.name));
                }
            }
        }
    }
    void add_target(std::size_t g, std::size_t v, std::size_t p, const std::string& name, const StoredOrder& order,
                    Stored* from) {
        const SavedValues& values = *state_.groups[g]->values[v];
        if (from == nullptr) {
            // A master that the files lack comes from the parameter's own tensor, or is missing with it.
            if (values.kind != "master") {
                report_.left.push_back(values.kind == "parameter" ? name : concat(values.kind, " of ", name));
            }
            return;
        }
        const std::string& path = files_->file(*from).path();
        if (!(from->tensor.shape == order.shape())) {
            throw FileError(path,
                            concat("tensor '", name, "' has shape ", from->tensor.shape.describe(), ", expected ",
                                   order.shape().describe()),
                            where_);
        }
        if (!is_read(from->tensor.type)) {
            throw FileError(path,
                            concat("tensor '", name, "' has elements of type ", safetensors::name(from->tensor.type),
                                   ", expected F64, F32, BF16 or F16"),
                            where_);
        }
        const bool first = !std::exchange(from->read, true);
        from->used = true;
        targets_.push_back(
            {{g, v, p, order, name, values.type, from->begin, from->tensor.bytes.size()}, from, first, 0});
    }
    void find_scalars() {
        if (options_.states) {
            for (const SavedScalar& scalar : state_.scalars) {
                Stored* const from = files_->find("scalars", scalar.name);
                if (from == nullptr) {
                    report_.left.push_back(scalar.name);
                    continue;
                }
                const auto type = scalar.real ? safetensors::DType::f64 : safetensors::DType::u64;
                if (from->tensor.type != type || from->tensor.numel() != 1) {
                    throw FileError(files_->file(*from).path(),
                                    concat("'", scalar.name, "' is no ", safetensors::name(type)), where_);
                }
                SavedScalar read = scalar;
                files_->file(*from).read(from->begin, std::as_writable_bytes(std::span(&read.bits, 1)));
                check(*from, std::as_bytes(std::span(&read.bits, 1)));
                scalars_.push_back(read);
            }
            if (scalars_.size() != state_.scalars.size()) { scalars_.clear(); }
        }
        for (const auto& [name, bytes] : state_.blobs) {
            Stored* const from = files_->find("scalars", concat("blob.", name));
            if (from == nullptr) {
                report_.left.push_back(concat("blob.", name));
                continue;
            }
            std::vector<std::uint8_t> read(from->tensor.bytes.size());
            files_->file(*from).read(from->begin, std::as_writable_bytes(std::span(read)));
            check(*from, std::as_bytes(std::span(read)));
            blobs_.emplace_back(bytes, std::move(read));
        }
    }
    void check(Stored& stored, std::span<const std::byte> bytes) const {
        stored.used = true;
        if (files_->verified() && crc32c::of(bytes) != stored.crc32c) {
            throw_damaged(files_->file(stored).path(), concat("'", stored.tensor.name, "'"), where_);
        }
    }
    void refuse_unmatched() {
        for (const Stored& stored : files_->tensors()) {
            const std::string& kind = files_->kind(stored);
            if (stored.used || (!options_.states && kind != "model" && kind != "master")) { continue; }
            report_.unused.push_back(kind == "model" || kind == "scalars" ? stored.tensor.name
                                                                          : concat(kind, " of ", stored.tensor.name));
        }
        if (options_.subset || (report_.left.empty() && report_.unused.empty())) { return; }
        const std::string& path =
            files_->tensors().empty() ? std::string("load") : files_->file(files_->tensors().front()).path();
        throw FileError(path,
                        concat("and the files beside it lack ", safetensors::listed(report_.left), ", and have ",
                               safetensors::listed(report_.unused), " besides: see LoadOptions::states and subset"),
                        where_);
    }

    void read() {
        std::unique_ptr<MemoryCopies> copies;  // where there are values that the host cannot write
        for (Target& target : targets_) {
            const SavedGroup& group = *state_.groups[target.tensor.group];
            const SavedValues& values = *group.values[target.tensor.values];
            if (copies == nullptr && !values.on_host) { copies = values.copies(where_); }
            const TensorReader reader(target.tensor, group, files_->file(*target.from), target.from->tensor.type,
                                      {world_.rank(), world_.size()}, copies.get());
            target.digest = reader.read(target.digests && files_->verified());
            ++report_.tensors;
        }
        for (std::size_t slot = 0; copies != nullptr && slot < MemoryCopies::slots; ++slot) { copies->finish(slot); }
    }
    /// That every byte that some rank has read is what was written. Collective over the world.
    void verify() {
        std::vector<std::uint32_t> own;
        for (const Target& target : targets_) { own.push_back(target.digest); }
        const auto all = world_.gather(std::span<const std::uint32_t>(own), where_);
        for (std::size_t t = 0; t < targets_.size(); ++t) {
            if (!targets_[t].digests) { continue; }
            std::uint32_t sum = 0;
            for (std::size_t rank = 0; rank < world_.size(); ++rank) { sum ^= all[rank * own.size() + t]; }
            const Stored& from = *targets_[t].from;
            if (crc32c::finished(sum, from.tensor.bytes.size()) != from.crc32c) {
                throw_damaged(files_->file(from).path(), concat("tensor '", from.tensor.name, "'"), where_);
            }
        }
    }

    RankWorld& world_;
    LoadOptions options_;
    FileCalls& calls_;
    SourceLocation where_;
    SavedState state_;
    std::unique_ptr<CheckpointFiles> files_;
    std::vector<Target> targets_;
    std::vector<SavedScalar> scalars_;
    std::vector<std::pair<std::vector<std::uint8_t>*, std::vector<std::uint8_t>>> blobs_;
    LoadReport report_;
};

}  // namespace shardkit::detail
