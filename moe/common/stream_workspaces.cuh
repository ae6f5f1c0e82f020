// Memory that calls on one stream keep, so that calls may be in flight on several.
#pragma once

#include <map>

#include "rt.cuh"

namespace kb {

// `Workspace` has `sizes`, whose type has within(other) and raise_to(other). For a static variable
// of a step's host path.
template <typename Workspace>
class StreamWorkspaces {
 public:
  // The stream's own. Nothing can be allocated while the caller records a stream: unless its own is
  // large enough, such a call gets the workspace of the call before.
  template <typename Sizes>
  Workspace& get(void* stream, const Sizes& sizes) {
    if (last_used_ != nullptr && rt::recorded(rt::Stream{stream})) {
      const auto own = kept_.find(stream);
      if (own == kept_.end() || !sizes.within(own->second.sizes)) return *last_used_;
    }
    last_used_ = &kept_[stream];
    last_used_->sizes.raise_to(sizes);
    return *last_used_;
  }

 private:
  std::map<void*, Workspace> kept_;  // by stream
  Workspace* last_used_ = nullptr;
};

}  // namespace kb
