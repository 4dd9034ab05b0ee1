// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <shardkit/checkpoint/checkpoint_state.hpp>
#include <shardkit/checkpoint/load.hpp>
#include <shardkit/checkpoint/save.hpp>
#include <shardkit/checkpoint/save_model.hpp>
#include <shardkit/compiled/checkpoint_interface.hpp>
#include <shardkit/compiled/core_model.hpp>
#include <shardkit/compiled/core_rank.hpp>

// Defines the classes of checkpoint_interface.hpp for one engine.

namespace shardkit::compiled SHARDKIT_CHECKED_BUILD {

template <class EngineType>
class SavedStateOf final : public SavedState {
  public:
    using Engine = EngineType;
    SavedStateOf(const Groups& model, SourceLocation where)
        : SavedStateOf(checkpoint::State<Engine>(on<const GroupsOf<Engine>>(model, where).model(), where)) {}
    explicit SavedStateOf(checkpoint::State<Engine> state)
        : SavedState(engine_core<Engine>()), core(std::move(state)) {}

    SavedState* copy() const override { return new SavedStateOf(core); }
    std::uint64_t version(SourceLocation where) const override {
        return shardkit::detail::Access::version(core, where);
    }
    void add(Optimizer& optimizer, SourceLocation where) override {
        core.add(core_as<Engine>(optimizer, where), where);
    }
    void add(LossScale& loss_scale, std::string name, SourceLocation where) override {
        core.add(on<LossScaleOf<Engine>>(loss_scale, where).core, std::move(name), where);
    }
    void add(std::string name, std::vector<std::uint8_t>& blob, SourceLocation where) override {
        core.blob(std::move(name), blob, where);
    }

    checkpoint::State<Engine> core;
};

template <class Engine>
class CheckpointsOf final : public Checkpoints {
    using Rank = ContextOf<Engine>;
    using State = const SavedStateOf<Engine>;
    using Model = const GroupsOf<Engine>;

  public:
    SavedState* make_state(const Groups& model, SourceLocation where) const override {
        return new SavedStateOf<Engine>(model, where);
    }
    checkpoint::Folder save(Context& rank, const std::string& folder, std::uint64_t step, const SavedState& state,
                            const checkpoint::SaveOptions& options, SourceLocation where) const override {
        return checkpoint::save(on<Rank>(rank, where).core, folder, step, on<State>(state, where).core, options,
                                where);
    }
    PendingSave* begin_save(Context& rank, const std::string& folder, std::uint64_t step, const SavedState& state,
                            const checkpoint::SaveOptions& options, SourceLocation where) const override {
        struct Pending final : PendingSave {
            explicit Pending(checkpoint::PendingSave begun) : core(std::move(begun)) {}
            checkpoint::Folder commit(SourceLocation at) override { return std::move(core).commit(at); }
            checkpoint::PendingSave core;
        };
        return new Pending(checkpoint::begin_save(on<Rank>(rank, where).core, folder, step,
                                                  on<State>(state, where).core, options, where));
    }
    std::optional<checkpoint::Folder> latest(Context& rank, const std::string& folder, checkpoint::FileCalls* files,
                                             SourceLocation where) const override {
        return checkpoint::latest(on<Rank>(rank, where).core, folder, files, where);
    }
    checkpoint::LoadReport load(Context& rank, const std::string& folder, const SavedState& state,
                                const checkpoint::LoadOptions& options, SourceLocation where) const override {
        return checkpoint::load(on<Rank>(rank, where).core, folder, on<State>(state, where).core, options, where);
    }
    checkpoint::LoadReport load_model(Context& rank, const std::string& path, const Groups& model,
                                      const checkpoint::LoadOptions& options, SourceLocation where) const override {
        return checkpoint::load_model(on<Rank>(rank, where).core, path, on<Model>(model, where).model(), options,
                                      where);
    }
    void save_model(Context& rank, const std::string& path, const Groups& model,
                    const checkpoint::SaveOptions& options, SourceLocation where) const override {
        checkpoint::save_model(on<Rank>(rank, where).core, path, on<Model>(model, where).model(), options, where);
    }
    checkpoint::Folder roll_back(Context& rank, const std::string& folder, std::uint64_t step,
                                 checkpoint::FileCalls* files, SourceLocation where) const override {
        return checkpoint::roll_back(on<Rank>(rank, where).core, folder, step, files, where);
    }
};

}  // namespace SHARDKIT_CHECKED_BUILD
