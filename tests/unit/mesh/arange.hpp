// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <string_view>
#include <vector>

#include <shardkit/mesh/axis_grid.hpp>

namespace mesh_oracle {

/// arange(size).reshape(extents) written out: the coordinates of every rank, counted up like an odometer, without
/// strides, division or remainder.
class Arange {
  public:
    Arange(std::vector<std::string_view> names, std::vector<std::size_t> extents) : names_(std::move(names)) {
        std::vector<std::size_t> at(extents.size(), 0);
        bool more = true;
        while (more) {
            coordinates_.push_back(at);
            more = false;
            for (std::size_t a = extents.size(); a-- > 0 && !more;) {
                if (++at[a] < extents[a]) {
                    more = true;
                } else {
                    at[a] = 0;
                }
            }
        }
    }
    explicit Arange(const shardkit::AxisGrid& grid) : Arange(names_of(grid), extents_of(grid)) {}

    std::size_t size() const { return coordinates_.size(); }
    std::size_t coordinate(std::string_view name, std::size_t rank) const { return coordinates_[rank][axis(name)]; }
    /// Every rank that agrees with `rank` off `names`, sorted by its coordinates along `names` in that order.
    std::vector<std::size_t> group(const std::vector<std::string_view>& names, std::size_t rank) const {
        std::vector<std::size_t> members;
        for (std::size_t q = 0; q < size(); ++q) {
            bool beside = true;
            for (std::size_t a = 0; a < names_.size(); ++a) {
                const bool free = std::find(names.begin(), names.end(), names_[a]) != names.end();
                beside = beside && (free || coordinates_[q][a] == coordinates_[rank][a]);
            }
            if (beside) { members.push_back(q); }
        }
        const auto along = [&](std::size_t q) {
            std::vector<std::size_t> key;
            for (const std::string_view name : names) { key.push_back(coordinate(name, q)); }
            return key;
        };
        std::sort(members.begin(), members.end(), [&](std::size_t a, std::size_t b) { return along(a) < along(b); });
        return members;
    }

  private:
    static std::vector<std::string_view> names_of(const shardkit::AxisGrid& grid) {
        std::vector<std::string_view> names;
        for (std::size_t i = 0; i < grid.axis_count(); ++i) { names.push_back(grid.axis(i).name); }
        return names;
    }
    static std::vector<std::size_t> extents_of(const shardkit::AxisGrid& grid) {
        std::vector<std::size_t> extents;
        for (std::size_t i = 0; i < grid.axis_count(); ++i) { extents.push_back(grid.axis(i).extent); }
        return extents;
    }
    std::size_t axis(std::string_view name) const {
        return static_cast<std::size_t>(std::find(names_.begin(), names_.end(), name) - names_.begin());
    }

    std::vector<std::string_view> names_;
    std::vector<std::vector<std::size_t>> coordinates_;
};

inline std::vector<std::size_t> members_of(const shardkit::RankGroup& group) {
    std::vector<std::size_t> members;
    for (std::size_t i = 0; i < group.size(); ++i) { members.push_back(group.member(i)); }
    return members;
}

}  // namespace mesh_oracle
