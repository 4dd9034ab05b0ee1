// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/checkpoint/file_names.hpp>
#include <shardkit/checkpoint/stored_as.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/detail/not_copied.hpp>
#include <shardkit/memory/memory_copies.hpp>
#include <shardkit/param/tensor_part.hpp>
#include <shardkit/sharded/list_shards.hpp>
#include <shardkit/spi/groups.hpp>
#include <shardkit/spi/placement.hpp>

namespace shardkit::detail {

class SavedGroup;

/// A group's values of one kind (parameters, masters, a state) on one rank: held memory as files name it.
class SavedValues : NotCopied {
  public:
    /// Of values that lie otherwise in the rank's memory: what fills a copy in host memory with them, unless null,
    /// and what puts a copy that a load has written in their place.
    struct Copied {
        std::function<void(std::span<std::byte> copy)> read{};
        std::function<void(std::span<const std::byte> copy)> write{};
    };

    StoredKind kind;
    ElementType type{};
    bool on_host = true;    ///< in memory that the host can read and write
    IndexRange saved;       ///< elements of the flat buffer that this rank can save; other ranks may have them too
    IndexRange loaded;      ///< elements that this rank must load; they include `saved`
    List<char> of;          ///< whether each parameter has such values
    double code_scale = 0;  ///< of elements that are codes with a scale of their type; 0 for others
    std::string rule{};     ///< of states: what their optimizer's rule is called
    const SavedGroup* holder = nullptr;  ///< of those that are not `on_host`

    /// Values in held memory. Of copies of what other ranks update, a load needs none: the next gather makes them.
    SavedValues(const StoredKind& of_kind, const GroupGeometry& group, const HeldMemory& held, List<char> parameters)
        : SavedValues(of_kind, held.values.type(), group, std::move(parameters)) {
        if (held.shape.rows > 0) {
            const OwnShape& shape = held.shape;
            own_ = geometry_of(group, shape);
            if (shape.parts > 1) { suffix_ = concat(" of tp ", shape.tp, "/", shape.parts); }
        }
        saved = geometry().updated;
        const bool is_part = held.copies != HeldMemory::Copies::none || own_ != nullptr;
        loaded = is_part ? saved : held.flat;
        values_ = held.values.subspan(own_ != nullptr ? 0 : loaded.begin - held.flat.begin, loaded.size());
    }
    /// Values that are copied. Memory: of those that this rank updates, from the first use of `memory` on.
    SavedValues(const StoredKind& of_kind, ElementType of_type, const GroupGeometry& group, List<char> parameters,
                Copied copied)
        : SavedValues(of_kind, of_type, group, std::move(parameters)) {
        copied_ = std::make_unique<Copied>(std::move(copied));
        saved = loaded = geometry().updated;
    }

    /// Returns the address of element `flat` (of `loaded`) in host or device memory.
    std::byte* memory(std::size_t flat) const {
        const std::size_t size = size_of(type);
        if (is_copy() && copy_.size() != loaded.size() * size) {
            copy_.resize(loaded.size() * size);
            if (copied_->read) { copied_->read(copy_); }
        }
        return (is_copy() ? copy_.data() : static_cast<std::byte*>(values_.data())) + (flat - loaded.begin) * size;
    }
    /// Returns those that this rank can save. @pre they are no copy
    StoredElements to_save() const noexcept { return values_.subspan(saved.begin - loaded.begin, saved.size()); }
    /// Returns the elements `loaded`. @pre they are no copy
    const StoredElements& values() const noexcept { return values_; }
    /// Returns whether `memory` is a copy in host memory. A save keeps its pieces; after a load `end_load` puts what
    /// was written to it in place.
    bool is_copy() const noexcept { return copied_ != nullptr; }
    std::span<const std::byte> copy() const noexcept { return copy_; }
    Copied& copied() noexcept { return *copied_; }
    void end_load() {
        if (!is_copy() || copy_.empty() || !copied_->write) { return; }
        copied_->write(copy_);
        copy_ = {};
    }
    /// Notes, and returns, whether a load reads the values of a parameter.
    void will_read(std::size_t parameter) { read_[parameter] = 1; }
    bool is_read(std::size_t parameter) const noexcept { return read_[parameter] != 0; }

    /// Returns where the values lie: the group's geometry, or one of blocks of 8 bits or of a state's own shape.
    const GroupGeometry& geometry() const noexcept { return own_ != nullptr ? *own_ : *group_; }
    /// Returns the tensors that hold the values of parameter `p`, in the files of their kind. What is of another
    /// shape than the parameter, as scales are, is in one tensor, in its own order, with the name of the parameter's
    /// first one.
    List<StoredTensor> stored(const checkpoint::TensorNames& names, std::size_t p, SourceLocation where) const {
        const PlacedParameter& parameter = geometry().parameters[p];
        checkpoint::StoredAs as = names(group_->path, group_->parameters[p]);
        if (own_ != nullptr && !as.absent) {
            std::string name = as.parts.empty() ? as.name : as.parts.front().name;
            if (as.begin) { name += concat("[", *as.begin, "]"); }  // which others share
            as = checkpoint::stored(name + suffix_, parameter.shape);
        }
        return StoredOrder::of(as, group_->path, parameter, where);
    }

  private:
    SavedValues(const StoredKind& of_kind, ElementType of_type, const GroupGeometry& group, List<char> parameters)
        : kind(of_kind), type(of_type), of(std::move(parameters)), group_(&group), read_(of.size()) {
        if (kind.scales) { own_ = std::make_unique<const GroupGeometry>(blocks_of(group)); }
    }
    /// A geometry in which the owner of a state with its own shape is alone, or all ranks have copies.
    static std::unique_ptr<const GroupGeometry> geometry_of(const GroupGeometry& group, const OwnShape& shape) {
        auto made = std::make_unique<GroupGeometry>();
        GroupGeometry& g = *made;
        static_cast<GroupDescription&>(g) = group;
        g.path = group.path;
        g.parameters = group.parameters;
        PlacedParameter& p = g.parameters[shape.parameter];
        if (shape.everywhere) {
            g.replicas = group.shards * group.replicas * group.ep;
            g.replica_index = group.data_index();
            g.tp_index = group.tp_index;
            g.ep = 1;
            g.experts = p.experts = false;
        } else {
            g.replicas = g.tp = 1;
            g.ep_index = group.ep_index;
        }
        g.shards = 1;
        g.buffer_numel = g.shard_numel = shape.rows * shape.of_each;
        g.own = g.updated = {0, shape.owned ? g.buffer_numel : 0};
        p.shape = {};
        p.shape.rank = 2;
        p.shape.extents[0] = shape.rows * g.ep;
        p.shape.extents[1] = shape.of_each;
        p.tp = {};
        p.part = part_of(p, p.shape, {1, 0, g.ep, g.ep_index});
        p.range = {0, g.buffer_numel};
        return made;
    }

    const GroupGeometry* group_;
    std::unique_ptr<const GroupGeometry> own_;
    std::string suffix_;
    List<char> read_;
    StoredElements values_;
    std::unique_ptr<Copied> copied_;
    mutable std::vector<std::byte> copy_;
};

/// A state of a group, which a load can show in the form that it does not have in memory: as numbers where it is in
/// blocks of 8 bits, as codes and scales where it is not.
struct StateForm {
    std::size_t first;  ///< of its values in the group: numbers, or codes and behind them scales
    bool in_blocks;     ///< whether it is codes and scales
    bool square;        ///< whether its numbers are squares

    std::size_t count() const noexcept { return in_blocks ? 2 : 1; }
};

}  // namespace shardkit::detail
