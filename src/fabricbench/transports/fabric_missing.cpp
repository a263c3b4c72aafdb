// In place of fabric_endpoint.cpp where libfabric's headers are missing.
#include "fabricbench/transports/fabric_endpoint.hpp"

namespace fabricbench {

FabricOffer fabric_offer(bool) {
  FabricOffer offer;
  offer.why_not =
      "this fabricbench was built without libfabric: install its headers (libfabric-dev), or give -DLIBFABRIC_ROOT=, "
      "and build it again";
  return offer;
}

}  // namespace fabricbench
